-- Two event rows in one durable commit: the reference of row 1.
\set s random(0, 1000)
INSERT INTO ev (session_id, type, data) VALUES (md5(:s::text)::uuid, 'user.message', '{"type":"user.message","content":[{"type":"text","text":"Please look at the three files that changed since yesterday."}]}'), (md5(:s::text)::uuid, 'session.status_running', '{}');
