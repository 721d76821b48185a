-- Tokens of a deployment's repositories: sealed as credentials are (0013_vaults.sql), all of them in one text, bound to the row. resources holds none.
ALTER TABLE deployments
    ADD COLUMN key_id text COLLATE "C",
    ADD COLUMN secret text COLLATE "C",
    ADD CONSTRAINT deployments_sealed CHECK ((secret IS NULL) = (key_id IS NULL));
CREATE INDEX deployments_keys ON deployments (key_id, id) WHERE secret IS NOT NULL;
