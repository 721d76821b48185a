-- What the MCP servers of a thread's agent listed, taken once: a server cannot change its tools in the middle of a session. A server that
-- could not be asked has an empty list and the turn in which that was: the next turn asks again.
CREATE TABLE mcp_tools (
    session_id  text COLLATE "C" NOT NULL REFERENCES sessions ON DELETE CASCADE,
    thread_id   text COLLATE "C" NOT NULL DEFAULT '',
    server      text COLLATE "C" NOT NULL,           -- mcp_servers[].name
    url         text NOT NULL,
    tools       text NOT NULL,                       -- raw JSON array of {name, description, input_schema}
    failed_turn bigint,                              -- turn_trigger of that turn
    taken_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, thread_id, server)
);
