-- What a session published of /mnt/session/outputs are its files with an output_path. calls: how many tool calls it had made by then, so that only what
-- a call may have changed is looked at again.
CREATE TABLE session_outputs (
    session_id text COLLATE "C" PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    calls      bigint NOT NULL
);

-- A session that goes takes its outputs along, but for those that others use.
CREATE FUNCTION mg_outputs_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (DELETE FROM files f WHERE f.session_id = OLD.id
        AND NOT EXISTS (SELECT 1 FROM session_resources r WHERE r.file_id = f.id AND r.session_id <> OLD.id)
        AND NOT EXISTS (SELECT 1 FROM session_files p WHERE p.file_id = f.id AND p.session_id <> OLD.id)
        RETURNING object_key)
    UPDATE objects o SET state = 'deleting', revision = nextval('object_revisions'), last_checked_at = NULL
        FROM gone WHERE o.key = gone.object_key AND o.state = 'ready';
    UPDATE files SET session_id = NULL, output_path = NULL WHERE session_id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER outputs_gone AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION mg_outputs_gone();
