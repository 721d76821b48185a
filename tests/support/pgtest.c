#include "support/pgtest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "store/migrate.h"
#include "store/pg.h"

enum {
    EXIT_SKIPPED = 77,               /* automake's code */
    MIGRATION_MAX = 4 * 1024 * 1024, /* bytes of one file */
    NAME_MAX_LEN = 63,               /* PostgreSQL's limit of an identifier */
    TEMPLATE_LOCK = 0x6d676f74       /* any number: key of the advisory lock around making the template */
};

struct mg_pgtest {
    char name[NAME_MAX_LEN + 1];
    char *conninfo;
};

static const char *server(void)
{
    const char *url = getenv("MANGO_TEST_DATABASE_URL");
    return url && *url ? url : NULL;
}

int pgtest_missing(void)
{
    if (server())
        return 0;
    puts("skipped: MANGO_TEST_DATABASE_URL is not set; run this test under tests/support/pg-run");
    return EXIT_SKIPPED;
}

__attribute__((noreturn)) static void fail(const char *what, const struct mg_err *err)
{
    fprintf(stderr, "pgtest: %s: %s\n", what, err->text);
    exit(EXIT_FAILURE);
}

static void script(struct mg_pg *pg, const char *sql)
{
    struct mg_err err = {0};
    if (mg_pg_script(pg, sql, &err) < 0)
        fail(sql, &err);
}

/* The server's connection string for another database: a URI or key=value pairs, and in both the last dbname counts. */
static char *conninfo_for(const char *database)
{
    const char *base = server();
    struct mg_buf b = MG_BUF_INIT(4096);
    const char *glue = !strstr(base, "://") ? " " : strchr(base, '?') ? "&" : "?";
    if (mg_buf_printf(&b, "%s%sdbname=%s", base, glue, database) < 0)
        abort();
    return mg_buf_steal(&b, NULL);
}

static void pg_cleanup(struct mg_pg **pg)
{
    mg_pg_free(*pg);
}

/* By the server's own code, so that a mangod on a copy finds its migrations applied. */
static void migrate(const char *database, const char *dir)
{
    mg_autofree char *conninfo = conninfo_for(database);
    __attribute__((cleanup(pg_cleanup))) struct mg_pg *pg = mg_pg_new(conninfo);
    struct mg_migrate_report report;
    struct mg_err err = {0};
    if (mg_migrate(pg, dir, &report, &err) < 0)
        fail("migrating the template", &err);
}

static void script_on(const char *database, const char *sql)
{
    mg_autofree char *conninfo = conninfo_for(database);
    __attribute__((cleanup(pg_cleanup))) struct mg_pg *pg = mg_pg_new(conninfo);
    script(pg, sql);
}

static bool exists(struct mg_pg *pg, const char *database)
{
    static const struct mg_stmt FIND = {"pgtest_find", "SELECT 1 FROM pg_database WHERE datname = $1"};
    struct mg_sv name = mg_sv_of(database);
    struct mg_err err = {0};
    mg_auto(res) struct mg_res *r = NULL;
    if (mg_pg_exec(pg, &FIND, &name, 1, &r, &err) < 0)
        fail("looking for the template", &err);
    return mg_res_rows(r) > 0;
}

static const char *migrations_dir(struct mg_arena *a)
{
    const char *src = getenv("MANGO_TEST_SRCDIR");
    return mg_arena_printf(a, "%s/migrations", src && *src ? src : MANGO_DATADIR).ptr;
}

static struct mg_sv read_file(struct mg_arena *a, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    char *text = mg_arena_alloc(a, MIGRATION_MAX);
    size_t n = fread(text, 1, MIGRATION_MAX - 1, f);
    fclose(f);
    return mg_sv_n(text, n);
}

static int is_sql(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".sql") == 0;
}

/* Texts of the migrations in order. */
static int read_migrations(struct mg_arena *a, const char *dir, struct mg_sv *out, int max)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, is_sql, alphasort);
    if (n <= 0 || n > max) {
        fprintf(stderr, "pgtest: no migrations in %s\n", dir);
        exit(EXIT_FAILURE);
    }
    for (int i = 0; i < n; i++) {
        out[i] = read_file(a, mg_arena_printf(a, "%s/%s", dir, names[i]->d_name).ptr);
        free(names[i]);
    }
    free(names);
    return n;
}

static uint64_t fnv1a(uint64_t h, struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    return h;
}

/* Makes the template unless it is there. Its name tells what it was made from, so a server that is kept serves every version. */
static void make_template(struct mg_pg *pg, char ret_name[NAME_MAX_LEN + 1])
{
    struct mg_arena *a = mg_arena_new();
    struct mg_sv texts[256];
    const char *dir = migrations_dir(a);
    int n = read_migrations(a, dir, texts, 256);
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        h = fnv1a(h, texts[i]);
    snprintf(ret_name, NAME_MAX_LEN + 1, "mango_template_%016llx", (unsigned long long)h);

    script(pg, mg_arena_printf(a, "SELECT pg_advisory_lock(%d)", TEMPLATE_LOCK).ptr);
    if (!exists(pg, ret_name)) {
        const char *part = mg_arena_printf(a, "%s_part", ret_name).ptr;
        script(pg, mg_arena_printf(a, "DROP DATABASE IF EXISTS %s", part).ptr);
        script(pg, mg_arena_printf(a, "CREATE DATABASE %s TEMPLATE template0", part).ptr);
        migrate(part, dir);
        script(pg, mg_arena_printf(a, "ALTER DATABASE %s RENAME TO %s", part, ret_name).ptr);
    }
    script(pg, mg_arena_printf(a, "SELECT pg_advisory_unlock(%d)", TEMPLATE_LOCK).ptr);
    mg_arena_free(a);
}

static struct mg_pgtest *create(bool empty)
{
    if (!server()) {
        fputs("pgtest: MANGO_TEST_DATABASE_URL is not set; call pgtest_missing() in main()\n", stderr);
        exit(EXIT_FAILURE);
    }
    __attribute__((cleanup(pg_cleanup))) struct mg_pg *pg = mg_pg_new(server());
    struct mg_pgtest *t = mg_xcalloc(1, sizeof *t);
    char template[NAME_MAX_LEN + 1] = "template0";
    if (!empty)
        make_template(pg, template);

    snprintf(t->name, sizeof t->name, "mango_test_%d_%08x", (int)getpid(), (unsigned)mg_rng_u64());
    char sql[256];
    snprintf(sql, sizeof sql, "CREATE DATABASE %s TEMPLATE %s", t->name, template);
    script(pg, sql);
    t->conninfo = conninfo_for(t->name);
    return t;
}

struct mg_pgtest *pgtest_new(void)
{
    return create(false);
}

struct mg_pgtest *pgtest_new_empty(void)
{
    return create(true);
}

const char *pgtest_conninfo(const struct mg_pgtest *t)
{
    return t->conninfo;
}

void pgtest_run(const struct mg_pgtest *t, const char *sql)
{
    script_on(t->name, sql);
}

void pgtest_free(struct mg_pgtest *t)
{
    if (!t)
        return;
    __attribute__((cleanup(pg_cleanup))) struct mg_pg *pg = mg_pg_new(server());
    char sql[128];
    snprintf(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", t->name);
    script(pg, sql);
    free(t->conninfo);
    free(t);
}
