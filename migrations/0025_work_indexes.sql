-- What indexes hold of an item: nothing that a poll or a heartbeat changes, so that these touch no index (HOT updates). The states are told by their times:
-- queued until acknowledged_at, then starting or active; stop_requested_at is set in stopping and stopped, stopped_at in stopped alone.

ALTER TABLE work DROP CONSTRAINT work_token_sha256_key; -- a token names its item
DROP INDEX work_live, work_queue, work_leases, work_ended;
CREATE UNIQUE INDEX work_live ON work (session_id) WHERE stopped_at IS NULL AND stop_requested_at IS NULL;
CREATE INDEX work_queue ON work (environment_id, waiting_since, id) WHERE acknowledged_at IS NULL AND stopped_at IS NULL;
CREATE INDEX work_claims ON work (session_id) WHERE acknowledged_at IS NOT NULL AND stopped_at IS NULL;
CREATE INDEX work_ended ON work (stopped_at) WHERE stopped_at IS NOT NULL;
