-- One session by its key: the reference of row 11.
\set s random(0, 1000)
SELECT * FROM se WHERE id = md5(:s::text)::uuid;
