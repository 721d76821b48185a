-- Vaults and the credentials in them. A secret is sealed with a key of the operator's keyring (core/store/keyring.h), which is never in the
-- database: what stands here is key_id and base64 of nonce, ciphertext and tag, bound to the row, the server and the public part of auth.

CREATE TABLE vaults (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    display_name text NOT NULL,
    metadata     text NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    archived_at  timestamptz
);
CREATE INDEX vaults_list ON vaults (workspace_id, created_at DESC, id DESC);

CREATE TABLE vault_credentials (
    id            text COLLATE "C" PRIMARY KEY,
    vault_id      text COLLATE "C" NOT NULL REFERENCES vaults ON DELETE CASCADE,
    display_name  text,
    metadata      text NOT NULL DEFAULT '{}',
    server        text COLLATE "C" NOT NULL,      -- the normalised URL, by which sessions find it
    auth          text NOT NULL,                  -- what clients see: no secret in it
    expires_at    timestamptz,                    -- of the access token, where that is known
    key_id        text COLLATE "C",
    secret        text COLLATE "C",
    refresh_until timestamptz,                    -- a node exchanges the refresh token until then at most; others wait
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    archived_at   timestamptz,
    CHECK ((archived_at IS NULL) = (secret IS NOT NULL)), -- archiving takes the secret away
    CHECK ((secret IS NULL) = (key_id IS NULL))
);
CREATE UNIQUE INDEX vault_credentials_one ON vault_credentials (vault_id, server) WHERE archived_at IS NULL;
CREATE INDEX vault_credentials_list ON vault_credentials (vault_id, created_at DESC, id DESC);
CREATE INDEX vault_credentials_keys ON vault_credentials (key_id, id) WHERE secret IS NOT NULL;
