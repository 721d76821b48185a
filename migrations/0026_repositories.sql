-- Repositories among the resources of sessions. The token is sealed as credentials are (0013_vaults.sql), bound to the row and the URL.
ALTER TABLE session_resources
    ADD COLUMN url      text COLLATE "C",
    ADD COLUMN checkout text,              -- JSON as clients see it; NULL: the default branch
    ADD COLUMN key_id   text COLLATE "C",
    ADD COLUMN secret   text COLLATE "C",
    ADD CONSTRAINT session_resources_kind CHECK ((type = 'file') = (file_id IS NOT NULL) AND (type = 'github_repository') = (url IS NOT NULL)),
    ADD CONSTRAINT session_resources_sealed CHECK ((secret IS NULL) = (key_id IS NULL));
CREATE INDEX session_resources_keys ON session_resources (key_id, id) WHERE secret IS NOT NULL;
