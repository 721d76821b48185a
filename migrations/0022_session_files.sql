-- Files that messages of a session name as content: model requests read their bytes, so they stay while the session may make any.
CREATE TABLE session_files (
    session_id text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    file_id    text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, file_id)
);
CREATE INDEX session_files_file ON session_files (file_id);
