-- Outcomes: what the agent shall reach and how it is graded. At most one of a session is open; session_state says where it stands, so that a turn
-- without one reads nothing of it.
ALTER TABLE session_state
    ADD COLUMN outcome_phase text NOT NULL DEFAULT 'none', -- none, queued (its turn has not begun), work, grade
    ADD COLUMN outcome_seq   bigint NOT NULL DEFAULT 0,    -- of its event
    ADD COLUMN outcomes      integer NOT NULL DEFAULT 0;   -- defined in this session

CREATE TABLE outcomes (
    session_id     text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id             text COLLATE "C" NOT NULL,
    seq            bigint NOT NULL,                  -- of its event
    description    text NOT NULL,
    rubric         text NOT NULL,
    max_iterations integer NOT NULL,
    iteration      integer NOT NULL DEFAULT 0,       -- of the next evaluation, or the last one
    result         text NOT NULL DEFAULT 'pending',  -- pending, running, evaluating; then one of the contract's four ends
    explanation    text,
    start_event    text COLLATE "C",                 -- span.outcome_evaluation_start of the running evaluation
    completed_at   timestamptz,
    PRIMARY KEY (session_id, id)
);
CREATE UNIQUE INDEX outcomes_open ON outcomes (session_id) WHERE completed_at IS NULL;
