-- Deployments: what a session is to be made of, once or by a schedule, and the runs.
--
-- Members of a session's body are kept as they came and checked again by each run, as an agent or an environment may be archived in between. A
-- slot is one row of deployment_runs, in the transaction that makes its session: whoever comes second finds it there.

CREATE TABLE deployments (
    id             text COLLATE "C" PRIMARY KEY,
    workspace_id   text COLLATE "C" NOT NULL REFERENCES workspaces,
    name           text NOT NULL,
    description    text,
    agent_id       text COLLATE "C" NOT NULL,
    agent_version  integer NOT NULL,                     -- pinned
    environment_id text COLLATE "C" NOT NULL,
    initial_events text NOT NULL,
    resources      text NOT NULL DEFAULT '[]',
    vault_ids      text NOT NULL DEFAULT '[]',
    metadata       text NOT NULL DEFAULT '{}',
    budget         text,
    expression     text,                                 -- of the schedule
    timezone       text,
    paused_reason  text,                                 -- set: it is paused
    upcoming       text NOT NULL DEFAULT '[]',           -- the next times as clients see them, the first of which is:
    next_run_at    timestamptz,
    last_run_at    timestamptz,
    claim          text COLLATE "C",                     -- of the node that runs a slot, until:
    claim_until    timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    archived_at    timestamptz,
    CHECK ((expression IS NULL) = (timezone IS NULL))
);
CREATE INDEX deployments_list ON deployments (workspace_id, created_at DESC, id DESC);
CREATE INDEX deployments_due ON deployments (next_run_at) WHERE next_run_at IS NOT NULL AND paused_reason IS NULL AND archived_at IS NULL;

CREATE TABLE deployment_runs (
    id            text COLLATE "C" PRIMARY KEY,
    workspace_id  text COLLATE "C" NOT NULL,
    deployment_id text COLLATE "C" NOT NULL REFERENCES deployments ON DELETE CASCADE,
    agent_id      text COLLATE "C" NOT NULL,
    agent_version integer NOT NULL,
    scheduled_at  timestamptz,                           -- NULL: started by hand
    session_id    text COLLATE "C",                      -- outlives the session
    error_type    text,
    error_message text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (deployment_id, scheduled_at),
    CHECK ((session_id IS NULL) <> (error_type IS NULL)),
    CHECK ((error_type IS NULL) = (error_message IS NULL))
);
CREATE INDEX deployment_runs_list ON deployment_runs (workspace_id, created_at DESC, id DESC);
CREATE INDEX deployment_runs_of ON deployment_runs (deployment_id, created_at DESC, id DESC);
CREATE INDEX sessions_by_deployment ON sessions (deployment_id) WHERE deployment_id IS NOT NULL;
