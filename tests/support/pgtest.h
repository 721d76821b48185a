/* A database of its own for one test, made from a template that holds the current schema.
 *
 * The server is the one that tests/support/pg-run exports in MANGO_TEST_DATABASE_URL. Failures end the program with a
 * message: a test can do nothing without its database. */
#ifndef TESTS_SUPPORT_PGTEST_H
#define TESTS_SUPPORT_PGTEST_H

struct mg_pgtest;

/* For main(): 0 when there is a server, else 77 (automake's "skipped") after saying why. */
int pgtest_missing(void);

struct mg_pgtest *pgtest_new(void);       /* with the current schema */
struct mg_pgtest *pgtest_new_empty(void); /* without any table, for tests of the migrations */
const char *pgtest_conninfo(const struct mg_pgtest *t);
void pgtest_free(struct mg_pgtest *t); /* drops the database, connections to it included; NULL is fine */

/* One statement of the test's own, outside of what it tests: fails the program when it fails. */
void pgtest_run(const struct mg_pgtest *t, const char *sql);

#endif
