-- Objects: bytes in the object store, a folder or S3. A row comes before the bytes and goes after them, so that nothing lies in the store that no
-- row names. States: uploading (its writer holds a lease), ready (something refers to it), deleting (a guard: the bytes are removed, again and
-- again, until its writer is known to have ended, since a late write could bring them back).

CREATE SEQUENCE object_revisions;

CREATE TABLE objects (
    key             text COLLATE "C" PRIMARY KEY,        -- random: no try writes where another one did
    workspace_id    text COLLATE "C" NOT NULL,
    kind            text NOT NULL,                       -- file, skill
    state           text NOT NULL DEFAULT 'uploading',   -- uploading, ready, deleting
    revision        bigint NOT NULL DEFAULT nextval('object_revisions'), -- of the guard: who removes it names the one that was seen
    size_bytes      bigint NOT NULL DEFAULT 0,
    sha256          text COLLATE "C",                    -- hex, of what was stored
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until     timestamptz NOT NULL,
    writer_finished boolean NOT NULL DEFAULT false,      -- the writer itself said so
    last_checked_at timestamptz
);
CREATE INDEX objects_leases ON objects (lease_until) WHERE state = 'uploading';
CREATE INDEX objects_guards ON objects (last_checked_at NULLS FIRST, key) WHERE state = 'deleting';

-- Which store the objects are in: a replica with another one must not answer for them.
ALTER TABLE deployment ADD COLUMN object_store text;

CREATE TABLE files (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    object_key   text COLLATE "C" NOT NULL UNIQUE REFERENCES objects,
    filename     text NOT NULL,
    mime_type    text NOT NULL,
    size_bytes   bigint NOT NULL,
    sha256       text COLLATE "C" NOT NULL,
    session_id   text COLLATE "C",                       -- of an output: the session that made it, and takes it along
    output_path  text COLLATE "C",                       -- and its path below /mnt/session/outputs
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz
);
CREATE INDEX files_list ON files (workspace_id, id DESC);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX files_outputs ON files (session_id, output_path) WHERE session_id IS NOT NULL;
