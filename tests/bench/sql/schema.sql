-- The tables of the references: what a log of events costs PostgreSQL at least.
CREATE TABLE ev (
    seq        bigserial PRIMARY KEY,
    session_id uuid NOT NULL,
    type       text NOT NULL,
    data       jsonb NOT NULL,
    at         timestamptz DEFAULT now()
);
CREATE INDEX ON ev (session_id, seq);
CREATE TABLE se AS SELECT md5(g::text)::uuid AS id, 0::bigint AS seq, 'idle' AS status FROM generate_series(0, 1000) g;
CREATE UNIQUE INDEX ON se (id);
INSERT INTO ev (session_id, type, data)
    SELECT md5((g % 1001)::text)::uuid, 'agent.message', '{"type":"agent.message","content":[{"type":"text","text":"I looked at the three files and found two functions that nobody calls any more, and one that is called from a single place only; the rest is in use. They can go."}],"n":1}'
    FROM generate_series(1, 120000) g;
VACUUM ANALYZE ev;
VACUUM ANALYZE se;
