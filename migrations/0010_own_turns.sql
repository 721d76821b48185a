-- A claim that another node made for this one may be the coordinator's own, and the child that ran may have ended since.
DROP INDEX session_state_threads;
CREATE INDEX session_state_own ON session_state (turn_node)
    WHERE roster AND (turn_step IN ('model', 'tools', 'backoff') OR busy_threads > 0);
