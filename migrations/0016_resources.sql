-- What is attached to a session: files that are put into its sandbox. sessions.resources is what clients see of it, kept in the same transactions.
CREATE TABLE session_resources (
    id         text COLLATE "C" PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    type       text NOT NULL,                        -- file
    file_id    text COLLATE "C",
    mount_path text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (session_id, mount_path)
);
CREATE INDEX session_resources_files ON session_resources (file_id) WHERE file_id IS NOT NULL;
