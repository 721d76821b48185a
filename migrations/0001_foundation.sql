-- The foundation: who may call, what agents and environments are, sessions with their events, the turn engine's durable state.
--
-- Conventions: ids are text with a prefix, compared bytewise; times are timestamptz cut to microseconds by now();
-- JSON that came from outside is kept as text, byte for byte (jsonb would change numbers and keys);
-- every tenant row names its workspace; the words of a state are kept right by the enums in the code: a CHECK on a table that every
-- turn writes is parsed again by every statement (measured: a third of the UPDATE of session_state).

-- Microseconds since 1970. STABLE, as date_part is, so that it is inlined; a double holds them exactly until the year 2255.
CREATE FUNCTION mg_us(t timestamptz) RETURNS bigint LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $$ SELECT round(date_part('epoch', t) * 1000000)::bigint $$;

-- Called when a guarded statement met another number of rows than its writer's epoch promised (core/store/pipe.c): aborts the pipeline.
CREATE FUNCTION mango_fence() RETURNS boolean LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN RAISE EXCEPTION 'fenced' USING ERRCODE = 'MG001'; END $$;

-- One row of facts about this deployment. deployment_id goes into every sandbox's ownership label.
CREATE TABLE deployment (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    deployment_id text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    write_probe   bigint NOT NULL DEFAULT 0          -- /readyz proves a write here
);
INSERT INTO deployment (deployment_id) VALUES (replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE workspaces (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO workspaces (id, name) VALUES ('wrkspc_default', 'Default');

CREATE TABLE environments (
    id           text COLLATE "C" PRIMARY KEY,
    workspace_id text COLLATE "C" NOT NULL REFERENCES workspaces,
    name         text NOT NULL,
    description  text,
    config_type  text NOT NULL CHECK (config_type IN ('cloud', 'self_hosted')),
    config       text NOT NULL,                      -- the resolved config object
    metadata     text NOT NULL DEFAULT '{}',
    scope        text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    archived_at  timestamptz,
    UNIQUE (workspace_id, id)
);
CREATE INDEX environments_list ON environments (workspace_id, created_at DESC, id DESC);

CREATE TABLE api_keys (
    id             text COLLATE "C" PRIMARY KEY,
    workspace_id   text COLLATE "C" NOT NULL REFERENCES workspaces,
    environment_id text COLLATE "C",                 -- set: an environment key, good for that environment's work only
    name           text NOT NULL,
    secret_sha256  text COLLATE "C" NOT NULL UNIQUE, -- hex; the key itself is never stored
    hint           text NOT NULL,                    -- last 4 characters, for people
    bootstrap      boolean NOT NULL DEFAULT false,   -- from MANGO_API_KEY; replaced when that changes
    created_at     timestamptz NOT NULL DEFAULT now(),
    revoked_at     timestamptz,
    FOREIGN KEY (workspace_id, environment_id) REFERENCES environments (workspace_id, id)
);

CREATE TABLE agents (
    id             text COLLATE "C" PRIMARY KEY,
    workspace_id   text COLLATE "C" NOT NULL REFERENCES workspaces,
    latest_version integer NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    archived_at    timestamptz
);
CREATE INDEX agents_list ON agents (workspace_id, created_at DESC, id DESC);

CREATE TABLE agent_versions (
    agent_id   text COLLATE "C" NOT NULL REFERENCES agents,
    version    integer NOT NULL CHECK (version > 0),
    body       text NOT NULL,                        -- resolved members of the Agent object, without id, version and times
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (agent_id, version)
);

-- What of a session changes rarely. Its hot half is session_state.
CREATE TABLE sessions (
    id             text COLLATE "C" PRIMARY KEY,
    workspace_id   text COLLATE "C" NOT NULL,        -- the environment's; a reference here would lock one row for every create
    agent_id       text COLLATE "C" NOT NULL,
    agent_version  integer NOT NULL,
    agent          text NOT NULL,                    -- the SessionAgent snapshot as clients see it
    environment_id text COLLATE "C" NOT NULL REFERENCES environments,
    env_type       text NOT NULL,                    -- cloud, self_hosted
    env_config     text NOT NULL,                    -- snapshot
    title          text,
    metadata       text NOT NULL DEFAULT '{}',
    resources      text NOT NULL DEFAULT '[]',
    vault_ids      text NOT NULL DEFAULT '[]',
    budget         text,
    deployment_id  text COLLATE "C",
    created_at     timestamptz NOT NULL DEFAULT now(),
    archived_at    timestamptz
);
CREATE INDEX sessions_list ON sessions (workspace_id, created_at DESC, id DESC);
CREATE INDEX sessions_by_agent ON sessions (workspace_id, agent_id, created_at DESC, id DESC);
CREATE INDEX sessions_by_environment ON sessions (environment_id);

-- The hot half: the row lock that orders everything of a session. Small, no index on what changes, so that updates stay on their page.
CREATE TABLE session_state (
    session_id      text COLLATE "C" PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    status          text NOT NULL DEFAULT 'idle',    -- idle, running, rescheduling, terminated
    last_seq        bigint NOT NULL DEFAULT 0,       -- of events
    transcript_len  integer NOT NULL DEFAULT 0,      -- entries of transcript
    queued_inputs   integer NOT NULL DEFAULT 0,      -- user messages that no turn has taken yet
    open_actions    integer NOT NULL DEFAULT 0,      -- tool calls that wait for a client
    updated_at      timestamptz NOT NULL DEFAULT now(),
    running_since   timestamptz,
    active_us       bigint NOT NULL DEFAULT 0,       -- sum of closed running intervals
    terminated_at   timestamptz,
    deleting_at     timestamptz,
    -- usage
    input_tokens    bigint NOT NULL DEFAULT 0,
    output_tokens   bigint NOT NULL DEFAULT 0,
    cache_read      bigint NOT NULL DEFAULT 0,
    cache_5m        bigint NOT NULL DEFAULT 0,
    cache_1h        bigint NOT NULL DEFAULT 0,
    web_searches    bigint NOT NULL DEFAULT 0,
    web_fetches     bigint NOT NULL DEFAULT 0,
    -- the turn: its node, its fencing epoch, its durable step
    turn_epoch      bigint NOT NULL DEFAULT 0,       -- grows by one at each claim and each interrupt; every write of a step checks it
    turn_node       text COLLATE "C",                -- NULL: no turn, or one that waits for a claim
    turn_step       text NOT NULL DEFAULT 'none',    -- none, model, tools, action, backoff
    turn_trigger    bigint NOT NULL DEFAULT 0,       -- inputs with seq <= this are part of the running turn
    turn_round      integer NOT NULL DEFAULT 0,      -- model requests made in this turn
    turn_attempt    integer NOT NULL DEFAULT 0,      -- failed attempts of the present request
    turn_continues  integer NOT NULL DEFAULT 0,      -- continuations after max_tokens or pause_turn in this turn
    turn_due_at     timestamptz,                     -- backoff: when to go on
    turn_request_id text COLLATE "C"                 -- the span.model_request_start of the present request
) WITH (fillfactor = 70);
-- Turns that a claim may take: found by the takeover scan. Rows enter and leave as turns run, so the index stays small.
CREATE INDEX session_state_turns ON session_state (turn_node) WHERE turn_step IN ('model', 'tools', 'backoff');
CREATE INDEX session_state_deleting ON session_state (deleting_at) WHERE deleting_at IS NOT NULL;

CREATE TABLE events (
    session_id   text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    seq          bigint NOT NULL,
    id           text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    thread_id    text COLLATE "C",
    body         text NOT NULL,                      -- the whole object without processed_at, as it goes out
    processed_at timestamptz,
    PRIMARY KEY (session_id, seq),
    UNIQUE (session_id, id)
);

-- What the model has been told, byte for byte. Never rebuilt from events.
CREATE TABLE transcript (
    session_id text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    ordinal    integer NOT NULL,
    role       text NOT NULL,                        -- user, assistant
    content    text NOT NULL,                        -- raw JSON array of blocks
    PRIMARY KEY (session_id, ordinal)
);

-- Tool journal: prepared -> started -> completed; started without a result after a crash is ambiguous, and never repeated.
CREATE TABLE tool_calls (
    session_id    text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    event_id      text COLLATE "C" NOT NULL,         -- of agent.tool_use / agent.custom_tool_use / agent.mcp_tool_use
    ordinal       integer NOT NULL,                  -- position in the assistant message
    round         integer NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('builtin', 'custom', 'mcp')),
    name          text NOT NULL,
    model_id      text NOT NULL,                     -- the endpoint's tool_use id
    input         text NOT NULL,                     -- raw
    state         text NOT NULL CHECK (state IN ('prepared', 'started', 'completed', 'ambiguous')),
    -- who must act before it can run or be answered: none, a confirmation, a client's result
    waits_for     text NOT NULL DEFAULT 'none' CHECK (waits_for IN ('none', 'confirmation', 'result')),
    waiting_since timestamptz,
    decision      text CHECK (decision IN ('allow', 'deny')),
    deny_message  text,
    result        text,                              -- raw JSON array of content blocks for the transcript
    is_error      boolean,
    result_event  text COLLATE "C",                  -- the event that carries the result
    epoch         bigint NOT NULL,
    PRIMARY KEY (session_id, event_id)
);

-- Nodes: one lease row each, renewed every TTL/3 on the database's clock.
CREATE TABLE nodes (
    id          text COLLATE "C" PRIMARY KEY,
    host        text NOT NULL,
    version     text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL
);

-- A create that is in flight: committed before the adapter is called, replaced by the binding.
CREATE TABLE sandbox_intents (
    session_id text COLLATE "C" PRIMARY KEY REFERENCES sessions,
    provider   text NOT NULL,
    label      text COLLATE "C" NOT NULL,
    spec       text NOT NULL,
    spec_hash  text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_try   timestamptz,
    tries      integer NOT NULL DEFAULT 0,
    last_error text
);

CREATE TABLE sandboxes (
    session_id  text COLLATE "C" PRIMARY KEY REFERENCES sessions,
    provider    text NOT NULL,
    external_id text NOT NULL,
    label       text COLLATE "C" NOT NULL,
    spec_hash   text NOT NULL,
    generation  text NOT NULL,                       -- the marker that the workspace must still hold
    created_at  timestamptz NOT NULL DEFAULT now(),
    lost_at     timestamptz,                         -- found missing: an explicit error until the client decides
    UNIQUE (provider, external_id)
);
