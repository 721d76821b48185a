/* The database, connection and arena of a test program. Included once, by the only file of the program. */
#ifndef TESTS_SUPPORT_PGTEST_RIG_H
#define TESTS_SUPPORT_PGTEST_RIG_H

#include "base/arena.h"
#include "store/pg.h"
#include "support/pgtest.h"

static struct mg_pgtest *db;
static struct mg_pg *pg;
static struct mg_arena *arena;

/* For cmocka, around each test or all of them; rows: what they find in the database. */
static int pgtest_up(const char *rows)
{
    db = pgtest_new();
    pg = mg_pg_new(pgtest_conninfo(db));
    arena = mg_arena_new();
    pgtest_run(db, rows);
    return 0;
}

static int pgtest_down(void **state)
{
    (void)state;
    mg_arena_free(arena);
    mg_pg_free(pg);
    pgtest_free(db);
    return 0;
}

#endif
