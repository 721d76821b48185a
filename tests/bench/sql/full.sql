-- Like a turn's commit: four round trips, an update of the session and four events. The reference of rows 2 and 5.
\set s random(0, 1000)
BEGIN;
UPDATE se SET seq = seq + 4, status = 'running' WHERE id = md5(:s::text)::uuid;
INSERT INTO ev (session_id, type, data) SELECT md5(:s::text)::uuid, 'agent.message', '{"type":"agent.message","content":[{"type":"text","text":"I looked at the three files and found two functions that nobody calls any more."}]}' FROM generate_series(1, 4);
COMMIT;
