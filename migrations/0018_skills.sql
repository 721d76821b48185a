-- Skills: bundles of files, in immutable versions. A session pins the versions that it was made with; a pinned one is not deleted.
CREATE TABLE skills (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    display_name text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX skills_list ON skills (workspace_id, id DESC);

CREATE TABLE skill_versions (
    skill_id    text COLLATE "C" NOT NULL REFERENCES skills,
    version     bigint NOT NULL,                     -- microseconds of its making, growing; its id for clients, as digits
    name        text NOT NULL,
    description text NOT NULL,
    directory   text NOT NULL,                       -- the top folder as it was sent
    object_key  text COLLATE "C" NOT NULL UNIQUE REFERENCES objects,
    size_bytes  bigint NOT NULL,                     -- of the canonical archive
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (skill_id, version)
);

CREATE TABLE session_skills (
    session_id text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    skill_id   text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    PRIMARY KEY (session_id, skill_id, version),
    FOREIGN KEY (skill_id, version) REFERENCES skill_versions
);
CREATE INDEX session_skills_pins ON session_skills (skill_id, version);
