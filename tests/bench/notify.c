/* What an event's way through PostgreSQL costs at least: one connection listens, one inserts a row and notifies in one durable
 * commit; ms from the send to the receipt. The reference of row 4.
 *
 *   notify CONNINFO ROUNDS       (table ev of tests/bench/sql/schema.sql)
 *
 * Prints {"p50", "p99"}. */
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/client.h"

static PGconn *open_db(const char *conninfo)
{
    PGconn *c = PQconnectdb(conninfo);
    if (PQstatus(c) != CONNECTION_OK)
        die("%s", PQerrorMessage(c));
    return c;
}

static void must(PGconn *c, PGresult *r)
{
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
        die("%s", PQerrorMessage(c));
    PQclear(r);
}

static void wait_note(PGconn *c)
{
    PGnotify *note;
    while (!(note = PQnotifies(c))) {
        struct pollfd p = {.fd = PQsocket(c), .events = POLLIN};
        if (poll(&p, 1, 10000) <= 0 || !PQconsumeInput(c))
            die("no notification came");
    }
    PQfreemem(note);
}

static uint64_t round_trip(PGconn *sender, PGconn *listener)
{
    uint64_t start = now_ns();
    if (!PQsendQueryPrepared(sender, "both", 0, NULL, NULL, NULL, 0))
        die("%s", PQerrorMessage(sender));
    wait_note(listener);
    uint64_t took = now_ns() - start;
    for (PGresult *r; (r = PQgetResult(sender));)
        must(sender, r);
    return took;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: notify CONNINFO ROUNDS");
    PGconn *listener = open_db(argv[1]), *sender = open_db(argv[1]);
    struct sample took = {0};
    long rounds = strtol(argv[2], NULL, 10);
    must(listener, PQexec(listener, "LISTEN bench"));
    must(sender,
         PQprepare(
             sender, "both",
             "WITH i AS (INSERT INTO ev (session_id, type, data) VALUES (md5('1')::uuid, 'agent.message', "
             "'{\"type\":\"agent.message\",\"content\":[{\"type\":\"text\",\"text\":\"I looked at the three files and "
             "found two functions that nobody calls any more.\"}]}') RETURNING seq) SELECT pg_notify('bench', "
             "max(seq)::text) FROM i",
             0, NULL));
    for (long i = 0; i < rounds; i++) {
        uint64_t ns = round_trip(sender, listener);
        if (i >= rounds / 20) /* the first ones warm the caches */
            sample_add(&took, ns);
    }
    printf("{\"p50\":%.3f,\"p99\":%.3f}\n", sample_ms(&took, 0.5), sample_ms(&took, 0.99));
    PQfinish(sender);
    PQfinish(listener);
    return 0;
}
