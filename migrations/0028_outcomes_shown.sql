-- What a session shows of its outcomes, as JSON text. A function, so that a session without any does not pay for the set-up of all this in each read.
CREATE FUNCTION mg_outcomes(session text) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $$ SELECT '[' || string_agg('{"type":"outcome_evaluation","outcome_id":"' || o.id
        || '","description":' || to_json(o.description) || ',"iteration":' || o.iteration || ',"result":"' || o.result
        || '","explanation":' || coalesce(to_json(o.explanation)::text, 'null') || ',"completed_at":'
        || coalesce('"' || to_char(o.completed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"', 'null')
        || '}', ',' ORDER BY o.seq) || ']' FROM outcomes o WHERE o.session_id = session $$;
