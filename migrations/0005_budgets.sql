-- Budgets: what a session has cost at list price, in nano-dollars, and the most that it may cost. sessions.budget holds what clients see.
ALTER TABLE session_state
    ADD COLUMN cost_nano    bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost_unknown boolean NOT NULL DEFAULT false, -- a model without a price was used: the sum is not all
    ADD COLUMN budget_nano  bigint;                         -- NULL: no budget
