-- Work of self_hosted environments: an item hands a session to a worker, which runs its tools.
--
-- A claim and an item are one thing: a claim that is taken away ends its item, and the session gets a new one with another id and another
-- secret, so that whatever a late worker still sends (ack, heartbeat, stop, a result) names an item that is over. The row of session_state
-- is locked before an item of that session is ended or a successor is queued; claims, acks and heartbeats lock the item alone.

CREATE TABLE work (
    id                text COLLATE "C" PRIMARY KEY,
    workspace_id      text COLLATE "C" NOT NULL,
    environment_id    text COLLATE "C" NOT NULL,        -- the session's; a reference here would lock one row for every item
    session_id        text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    state             text NOT NULL DEFAULT 'queued',   -- queued, starting, active, stopping, stopped
    metadata          text NOT NULL DEFAULT '{}',
    waiting_since     timestamptz NOT NULL DEFAULT clock_timestamp(), -- a reclaim keeps it: order and age stay true
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    token_sha256      text COLLATE "C" UNIQUE,          -- hex; the claim's token itself is never stored
    worker_id         text,
    polled_at         timestamptz,                      -- queued and polled: a tentative claim, until it is acknowledged
    acknowledged_at   timestamptz,
    started_at        timestamptz,                      -- the first heartbeat
    heartbeat_at      timestamptz,                      -- compared byte for byte with what the worker expects
    heartbeat_before  timestamptz,                      -- the one before, so that a repeated request is known as such
    ttl_s             integer NOT NULL DEFAULT 0,
    lease_until       timestamptz,                      -- starting, active: of the claim; stopping: the end of the worker's time
    stop_requested_at timestamptz,
    stopped_at        timestamptz,
    stop_cause        text                              -- stop, fail, nack, reclaimed, expired, session
) WITH (fillfactor = 70);
-- One item of a session at most that a worker has or may get. Admission relies on it: INSERT ... ON CONFLICT DO NOTHING.
CREATE UNIQUE INDEX work_live ON work (session_id) WHERE state IN ('queued', 'starting', 'active');
CREATE INDEX work_queue ON work (environment_id, waiting_since, id) WHERE state = 'queued';
CREATE INDEX work_leases ON work (lease_until) WHERE state IN ('starting', 'active', 'stopping');
CREATE INDEX work_list ON work (environment_id, created_at DESC, id DESC);
CREATE INDEX work_by_session ON work (session_id);
CREATE INDEX work_ended ON work (stopped_at) WHERE state = 'stopped';

-- Workers that poll, for workers_polling of the queue's stats. Rows that are old are deleted.
CREATE TABLE work_pollers (
    environment_id text COLLATE "C" NOT NULL REFERENCES environments ON DELETE CASCADE,
    worker_id      text COLLATE "C" NOT NULL,
    seen_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (environment_id, worker_id)
);
CREATE INDEX work_pollers_seen ON work_pollers (seen_at);

-- Calls that somebody outside must answer: for successors, deadlines and metrics. Small: only what is open.
CREATE INDEX tool_calls_open ON tool_calls (session_id, waiting_since) WHERE waits_for <> 'none';
