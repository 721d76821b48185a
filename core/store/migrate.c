/* Schema migrations. Every step is a transaction of its own under an advisory lock that dies with it. */
#include "store/migrate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"

struct migration {
    char *file; /* "0001_foundation.sql"; NULL: no such number */
    char sha256[MG_SHA256_HEX];
};

struct migrations {
    const char *dir;
    struct migration *at; /* by version; at[0] unused */
    int newest;
};

enum { LOCK_POLL_MS = 50 /* plus jitter */, VERSION_DIGITS = 4 };

static const struct mg_stmt sql_table = {
    "migrate_table", "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT NULL,"
                     " sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"};
static const struct mg_stmt sql_has_table = {"migrate_has_table",
                                             "SELECT to_regclass('schema_migrations') IS NOT NULL"};
static const struct mg_stmt sql_applied = {"migrate_applied",
                                           "SELECT version, name, sha256 FROM schema_migrations ORDER BY version"};
static const struct mg_stmt sql_lock = {"migrate_lock",
                                        "SELECT pg_try_advisory_xact_lock(hashtext('mango.schema_migrations'))"};
static const struct mg_stmt sql_unlimited = {"migrate_unlimited", "SELECT set_config('statement_timeout', '0', true)"};
static const struct mg_stmt sql_insert = {
    "migrate_insert", "INSERT INTO schema_migrations (version, name, sha256) VALUES ($1::integer, $2, $3)"};

static void mg_migrations_cleanup(struct migrations *m)
{
    for (int i = 0; i <= m->newest; i++)
        free(m->at[i].file);
    free(m->at);
}

/* The version of a name such as "0001_foundation.sql", 0 for other files. */
static int version_of(const char *name)
{
    int64_t v = 0;
    struct mg_sv s = mg_sv_of(name);
    if (s.len < VERSION_DIGITS + 6 || name[VERSION_DIGITS] != '_' || !mg_sv_ends(s, ".sql") ||
        !mg_sv_to_i64(mg_sv_n(name, VERSION_DIGITS), &v) || v < 1)
        return 0;
    return (int)v;
}

static mg_rc read_file(const char *dir, const char *name, struct mg_buf *out, struct mg_err *err)
{
    mg_autofree char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return mg_err_set(err, MG_EINTERNAL, "no memory");
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mg_err_set(err, MG_ECONFIG, "migration %s cannot be read: %s", path, strerror(errno));
    for (;;) {
        if (mg_buf_reserve(out, 64 * 1024) < 0)
            return mg_err_set(err, MG_ECONFIG, "migration %s is larger than %d bytes", path, MG_MIGRATION_BYTES_MAX);
        ssize_t n = read(fd, out->ptr + out->len, 64 * 1024);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mg_err_set(err, MG_ECONFIG, "migration %s cannot be read: %s", path, strerror(errno));
        if (n == 0)
            break;
        out->len += (size_t)n;
    }
    out->ptr[out->len] = '\0';
    if (memchr(out->ptr, '\0', out->len))
        return mg_err_set(err, MG_ECONFIG, "migration %s holds a NUL byte", path);
    return MG_OK;
}

static mg_rc note_file(struct migrations *m, const char *name, struct mg_err *err)
{
    int v = version_of(name);
    if (v == 0)
        return MG_OK;
    if (v > m->newest) {
        m->at = mg_xrealloc(m->at, ((size_t)v + 1) * sizeof(*m->at));
        memset(m->at + m->newest + 1, 0, (size_t)(v - m->newest) * sizeof(*m->at));
        m->newest = v;
    }
    if (m->at[v].file)
        return mg_err_set(err, MG_ECONFIG, "migrations %s and %s in %s have the same number", m->at[v].file, name,
                          m->dir);
    m->at[v].file = mg_xstrdup(name);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_MIGRATION_BYTES_MAX);
    mg_rc rc = read_file(m->dir, name, &b, err);
    if (rc == 0)
        mg_sha256_hex(mg_buf_view(&b), m->at[v].sha256);
    return rc;
}

static mg_rc load(struct migrations *m, struct mg_err *err)
{
    m->at = mg_xcalloc(1, sizeof(*m->at));
    DIR *d = opendir(m->dir);
    if (!d)
        return mg_err_set(err, MG_ECONFIG, "the migrations folder %s cannot be read: %s", m->dir, strerror(errno));
    mg_rc rc = MG_OK;
    for (struct dirent *e = readdir(d); e && rc == 0; e = readdir(d))
        rc = note_file(m, e->d_name, err);
    closedir(d);
    if (rc < 0)
        return rc;
    if (m->newest == 0)
        return mg_err_set(err, MG_ECONFIG, "the migrations folder %s holds no NNNN_name.sql", m->dir);
    for (int v = 1; v <= m->newest; v++) {
        if (!m->at[v].file)
            return mg_err_set(err, MG_ECONFIG,
                              "migration %04d is missing in %s, which goes up to %04d: install the release again", v,
                              m->dir, m->newest);
    }
    return MG_OK;
}

/* Compares what the database has with the files; *ret_version is the database's. */
static mg_rc compare(const struct migrations *m, const struct mg_res *r, int *ret_version, struct mg_err *err)
{
    int n = mg_res_rows(r);
    int last = n > 0 ? (int)mg_res_int(r, n - 1, 0) : 0;
    if (last > m->newest)
        return mg_err_set(
            err, MG_ECONFIG,
            "the database has schema version %d, newer than version %d, the newest that this server knows: start the "
            "newer release, or restore the backup from before its upgrade",
            last, m->newest);
    for (int i = 0; i < n; i++) {
        int v = (int)mg_res_int(r, i, 0);
        if (v != i + 1)
            return mg_err_set(err, MG_ECONFIG,
                              "the database has schema version %d but not %d: restore it from a backup", v, i + 1);
        struct mg_sv sum = mg_res_sv(r, i, 2);
        if (!mg_sv_eqz(sum, m->at[v].sha256))
            return mg_err_set(
                err, MG_ECONFIG,
                "migration %s (version %d of %d) was changed after it was applied: sha256 %.12s now, %.12s then; put "
                "the release's file back and add a new migration instead",
                m->at[v].file, v, m->newest, m->at[v].sha256, sum.ptr);
    }
    *ret_version = last;
    return MG_OK;
}

/* Waits for the lock by asking again: a statement that waits would run into the statement timeout. */
static mg_rc lock_and_compare(struct mg_txn *t, const struct migrations *m, bool *ret_locked, int *ret_version,
                              struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_txn_query(t, &sql_lock, NULL, 0, &r, err);
    if (rc < 0)
        return rc;
    *ret_locked = mg_res_bool(r, 0, 0);
    if (!*ret_locked)
        return MG_OK;
    rc = mg_txn_queue(t, &sql_table, NULL, 0, -1, err);
    if (rc < 0)
        return rc;
    struct mg_res *applied __attribute__((cleanup(mg_res_cleanup))) = NULL;
    rc = mg_txn_query(t, &sql_applied, NULL, 0, &applied, err);
    return rc < 0 ? rc : compare(m, applied, ret_version, err);
}

static mg_rc apply(struct mg_txn *t, const struct migrations *m, int version, struct mg_err *err)
{
    const struct migration *mig = &m->at[version];
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_MIGRATION_BYTES_MAX);
    mg_rc rc = read_file(m->dir, mig->file, &b, err);
    if (rc < 0)
        return rc;
    char sum[MG_SHA256_HEX], number[16];
    mg_sha256_hex(mg_buf_view(&b), sum);
    if (strcmp(sum, mig->sha256) != 0)
        return mg_err_set(err, MG_ECONFIG, "migration %s changes while it is read: stop the installation and try again",
                          mig->file);

    rc = mg_txn_queue(t, &sql_unlimited, NULL, 0, -1, err);
    if (rc == 0)
        rc = mg_txn_script(t, b.ptr, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "migration %s", mig->file);
    snprintf(number, sizeof(number), "%d", version);
    rc = mg_txn_queue(t, &sql_insert, (const struct mg_sv[]){mg_sv_of(number), mg_sv_of(mig->file), mg_sv_of(sum)}, 3,
                      -1, err);
    mg_hook("migrate.before_commit");
    if (rc == 0)
        rc = mg_txn_commit(t, err);
    return rc < 0 ? mg_err_wrap(err, rc, "migration %s", mig->file) : MG_OK;
}

/* One transaction: the next migration, or nothing when another server holds the lock or none is left. */
static mg_rc step(struct mg_pg *pg, const struct migrations *m, bool *ret_locked, int *ret_version, bool *ret_done,
                  struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock_and_compare(&t, m, ret_locked, ret_version, err);
    if (rc < 0 || !*ret_locked)
        return rc;
    *ret_done = *ret_version == m->newest;
    if (*ret_done)
        return mg_txn_commit(&t, err);
    return apply(&t, m, *ret_version + 1, err);
}

static void pause_ms(uint64_t ms)
{
    struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
}

mg_rc mg_migrate(struct mg_pg *pg, const char *dir, struct mg_migrate_report *ret, struct mg_err *err)
{
    __attribute__((cleanup(mg_migrations_cleanup))) struct migrations m = {.dir = dir};
    mg_rc rc = load(&m, err);
    /* A current schema is seen without a lock: the normal start. */
    if (rc == 0)
        rc = mg_migrate_check(pg, dir, ret, err);
    if (rc < 0 || ret->now == m.newest)
        return rc;

    uint64_t deadline = mg_now_ns() + (uint64_t)MG_MIGRATE_LOCK_MS * 1000000;
    for (bool done = false; !done;) {
        bool locked = false;
        int version = 0;
        rc = step(pg, &m, &locked, &version, &done, err);
        if (rc < 0)
            return rc;
        if (!locked && mg_now_ns() > deadline)
            return mg_err_set(err, MG_EUNAVAIL,
                              "another server has been migrating the database for %d minutes; look at its log",
                              MG_MIGRATE_LOCK_MS / 60000);
        if (!locked)
            pause_ms(LOCK_POLL_MS + mg_rng_below(LOCK_POLL_MS));
    }
    ret->newest = ret->now = m.newest;
    return MG_OK;
}

mg_rc mg_migrate_check(struct mg_pg *pg, const char *dir, struct mg_migrate_report *ret, struct mg_err *err)
{
    __attribute__((cleanup(mg_migrations_cleanup))) struct migrations m = {.dir = dir};
    mg_rc rc = load(&m, err);
    if (rc < 0)
        return rc;
    struct mg_res *has __attribute__((cleanup(mg_res_cleanup))) = NULL;
    struct mg_res *applied __attribute__((cleanup(mg_res_cleanup))) = NULL;
    rc = mg_pg_exec(pg, &sql_has_table, NULL, 0, &has, err);
    if (rc < 0)
        return rc;
    int version = 0;
    if (mg_res_bool(has, 0, 0)) {
        rc = mg_pg_exec(pg, &sql_applied, NULL, 0, &applied, err);
        if (rc == 0)
            rc = compare(&m, applied, &version, err);
        if (rc < 0)
            return rc;
    }
    *ret = (struct mg_migrate_report){.newest = m.newest, .was = version, .now = version};
    return MG_OK;
}
