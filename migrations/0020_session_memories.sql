-- What a session's sandbox and a memory store both had when they last met, by path: whatever differs from it has changed since. Written in the
-- transaction that takes a change over, so that a crash leaves a change to be found again, never one that is taken twice.
CREATE TABLE session_memories (
    session_id     text COLLATE "C" NOT NULL,
    store_id       text COLLATE "C" NOT NULL,
    path           text COLLATE "C" NOT NULL,
    content_sha256 text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, store_id, path),
    FOREIGN KEY (session_id, store_id) REFERENCES session_memory_stores ON DELETE CASCADE
);
-- When all of the store was in the sandbox for the first time. Before that the files there say nothing about what the agent did.
ALTER TABLE session_memory_stores ADD COLUMN mounted_at timestamptz;
