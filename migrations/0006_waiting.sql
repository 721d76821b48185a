-- What a session waits for, and since when: for metrics, for `mango session show`, for operators who settle it.

ALTER TABLE session_state ADD COLUMN step_since timestamptz; -- the present step (and request) began; NULL: before this migration
ALTER TABLE thread_state ADD COLUMN step_since timestamptz;
ALTER TABLE tool_calls ADD COLUMN started_at timestamptz;
CREATE INDEX tool_calls_waiting ON tool_calls (waits_for, waiting_since) WHERE waits_for <> 'none';
CREATE INDEX thread_state_steps ON thread_state (turn_step) WHERE turn_step IN ('model', 'tools', 'backoff');
