-- The budget stands once, in session_state; what clients see of it is written from the number.
ALTER TABLE sessions DROP COLUMN budget;
