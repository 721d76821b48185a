-- Memory stores: texts at paths, with an immutable version for each change.
--
-- content is the JSON string literal of the text: every character may be in it, NUL too, and it goes out as it stands. Every write locks the
-- row of the store first, so that paths, counts and the order of versions are one writer's at a time.

CREATE TABLE memory_stores (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    name         text NOT NULL,
    description  text NOT NULL DEFAULT '',
    metadata     text NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    archived_at  timestamptz
);
CREATE INDEX memory_stores_list ON memory_stores (workspace_id, created_at DESC, id DESC);

CREATE TABLE memories (
    id             text COLLATE "C" PRIMARY KEY,
    store_id       text COLLATE "C" NOT NULL REFERENCES memory_stores ON DELETE CASCADE,
    path           text COLLATE "C" NOT NULL,
    version_id     text COLLATE "C" NOT NULL,           -- the newest version
    content        text NOT NULL,
    content_sha256 text COLLATE "C" NOT NULL,           -- hex, of the text itself
    content_size   integer NOT NULL,                    -- bytes of the text itself
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    UNIQUE (store_id, path)
);

CREATE TABLE memory_versions (
    seq            bigint GENERATED ALWAYS AS IDENTITY, -- their order
    id             text COLLATE "C" PRIMARY KEY,
    store_id       text COLLATE "C" NOT NULL REFERENCES memory_stores ON DELETE CASCADE,
    memory_id      text COLLATE "C" NOT NULL,           -- outlives the memory
    operation      text NOT NULL CHECK (operation IN ('created', 'modified', 'deleted')),
    path           text COLLATE "C",
    content        text,
    content_sha256 text COLLATE "C",
    content_size   integer,
    actor_kind     text NOT NULL,                       -- api, session
    actor_id       text COLLATE "C" NOT NULL,
    created_at     timestamptz NOT NULL,
    redacted_at    timestamptz,
    redactor_kind  text,
    redactor_id    text COLLATE "C",
    CHECK ((operation = 'deleted' OR redacted_at IS NOT NULL) = (content IS NULL)),
    CHECK ((content IS NULL) = (content_sha256 IS NULL) AND (content IS NULL) = (content_size IS NULL)),
    CHECK ((redacted_at IS NULL) = (path IS NOT NULL))
);
CREATE INDEX memory_versions_list ON memory_versions (store_id, seq DESC);
CREATE INDEX memory_versions_of ON memory_versions (memory_id, seq DESC);

-- The stores of a session, as they were when it was created. No reference to the store: it may be deleted when the session is over.
CREATE TABLE session_memory_stores (
    session_id   text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    store_id     text COLLATE "C" NOT NULL,
    place        integer NOT NULL,
    read_only    boolean NOT NULL,
    mount_path   text NOT NULL,
    PRIMARY KEY (session_id, store_id)
);
CREATE INDEX session_memory_stores_of ON session_memory_stores (store_id);
