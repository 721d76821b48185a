-- A store of a session as clients see it: what it was called when the session was created. mount_path: its folder's name.
ALTER TABLE session_memory_stores ADD COLUMN shown text NOT NULL;
