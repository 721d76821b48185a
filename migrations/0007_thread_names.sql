-- The events of a coordinator's own thread name its agent; without it they would have to read the whole snapshot.
ALTER TABLE session_state ADD COLUMN agent_name text;

-- Which calls of a session wait for a client, in any thread.
CREATE INDEX tool_calls_waiting_of ON tool_calls (session_id) WHERE waits_for <> 'none';

-- A thread's share of what its session has cost.
ALTER TABLE thread_state
    ADD COLUMN cost_nano    bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost_unknown boolean NOT NULL DEFAULT false;
