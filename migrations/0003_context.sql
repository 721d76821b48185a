-- What of a transcript a model is shown. The transcript itself is never rewritten: marks say what stands in its place.

-- On an assistant's entry: what the endpoint counted for everything up to and including it, and the fingerprint of the fixed part
-- (model, system, tools) under which it did. NULL on others.
ALTER TABLE transcript ADD COLUMN tokens bigint, ADD COLUMN fixed bigint;

-- Insert-only; the newest of a kind counts. made_at: entries of the transcript at that time. turn: the trigger of the turn that made it.
--   summary   entries below a are told by content; texts of entries below b are shown as excerpts
--   refused   the endpoint found a request of an estimated a tokens too long
--   replaced  block b of entry a was refused by the endpoint; content stands in its place
CREATE TABLE context_marks (
    session_id text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    thread_id  text COLLATE "C" NOT NULL,            -- '': the primary one
    ordinal    integer NOT NULL,
    kind       text NOT NULL,
    made_at    integer NOT NULL,
    turn       bigint NOT NULL,
    a          bigint NOT NULL,
    b          bigint NOT NULL,
    content    text NOT NULL,
    PRIMARY KEY (session_id, thread_id, ordinal)
);
