-- A page of 100 events of one session: the reference of row 12.
\set s random(0, 1000)
SELECT seq, type, data::text FROM ev WHERE session_id = md5(:s::text)::uuid AND seq > 0 ORDER BY seq LIMIT 100;
