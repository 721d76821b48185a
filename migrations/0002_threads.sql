-- Threads: a session whose agent is a coordinator runs child agents, each with a transcript, a tool journal and a turn of its own.
-- The row of session_state stays the lock of the whole session, and it is the primary thread's turn; a child has a row of thread_state. A
-- primary thread is written as '' here, and as NULL in events.

ALTER TABLE session_state
    ADD COLUMN roster        boolean NOT NULL DEFAULT false, -- the agent is a coordinator: the session may have child threads
    ADD COLUMN busy_threads  integer NOT NULL DEFAULT 0,     -- child threads whose turn runs: turn_node owns them too
    ADD COLUMN relays        integer NOT NULL DEFAULT 0,     -- messages between threads since the client's last message
    ADD COLUMN turn_upto     bigint NOT NULL DEFAULT 0,      -- the last input that the running turn takes; 0: the trigger alone
    ADD COLUMN own_since     timestamptz,                    -- the primary thread's own running time, in coordinators' sessions
    ADD COLUMN own_active_us bigint NOT NULL DEFAULT 0;
DROP INDEX session_state_turns;
CREATE INDEX session_state_turns ON session_state (turn_node)
    WHERE (turn_step IN ('model', 'tools', 'backoff') OR busy_threads > 0);
CREATE INDEX session_state_threads ON session_state (turn_node) WHERE busy_threads > 0;

-- What a turn needs has the names of session_state: one text reads and writes both (core/store/session-state.c).
CREATE TABLE thread_state (
    session_id      text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    thread_id       text COLLATE "C" NOT NULL,
    ordinal         integer NOT NULL,                -- 1, 2, ... in the session
    agent_name      text NOT NULL,
    agent           text NOT NULL,                   -- the SessionThreadAgent snapshot as clients see it
    status          text NOT NULL DEFAULT 'idle',
    stop_reason     text,                            -- of the last idle, its type
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    running_since   timestamptz,
    active_us       bigint NOT NULL DEFAULT 0,
    terminated_at   timestamptz,
    archived_at     timestamptz,
    transcript_len  integer NOT NULL DEFAULT 0,
    queued_inputs   integer NOT NULL DEFAULT 0,
    open_actions    integer NOT NULL DEFAULT 0,
    input_tokens    bigint NOT NULL DEFAULT 0,       -- of this thread; session_state has the sum over all threads
    output_tokens   bigint NOT NULL DEFAULT 0,
    cache_read      bigint NOT NULL DEFAULT 0,
    cache_5m        bigint NOT NULL DEFAULT 0,
    cache_1h        bigint NOT NULL DEFAULT 0,
    web_searches    bigint NOT NULL DEFAULT 0,
    web_fetches     bigint NOT NULL DEFAULT 0,
    turn_epoch      bigint NOT NULL DEFAULT 0,
    turn_step       text NOT NULL DEFAULT 'none',
    turn_trigger    bigint NOT NULL DEFAULT 0,
    turn_upto       bigint NOT NULL DEFAULT 0,
    turn_round      integer NOT NULL DEFAULT 0,
    turn_attempt    integer NOT NULL DEFAULT 0,
    turn_continues  integer NOT NULL DEFAULT 0,
    turn_due_at     timestamptz,
    turn_request_id text COLLATE "C",
    PRIMARY KEY (session_id, thread_id)
) WITH (fillfactor = 70);

CREATE INDEX events_of_threads ON events (session_id, thread_id, seq) WHERE thread_id IS NOT NULL;

ALTER TABLE transcript ADD COLUMN thread_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE transcript DROP CONSTRAINT transcript_pkey, ADD PRIMARY KEY (session_id, thread_id, ordinal);

ALTER TABLE tool_calls
    ADD COLUMN thread_id text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN public_id text COLLATE "C", -- of the copy of a child's call in the primary thread, where clients answer it
    DROP CONSTRAINT IF EXISTS tool_calls_kind_check; -- the words are kept right by the enum in the code
CREATE UNIQUE INDEX tool_calls_public ON tool_calls (session_id, public_id) WHERE public_id IS NOT NULL;
