#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/cli-doctor.h"
#include "store/api-key.h"
#include "store/deployment.h"
#include "store/migrate.h"
#include "store/node.h"

enum {
    FREE_LOW_MIB = 1024, /* below it a private database soon stops */
    SKEW_WARN_MS = 1000,
    OLD_XACT_S = 300, /* an open transaction that old keeps dead rows of the queue from being cleaned up */
    CLOCK_TRIES = 3,
};

static const struct mg_stmt SQL_VERSION = {"doctor_version",
                                           "SELECT current_setting('server_version'), pg_is_in_recovery()"};
static const struct mg_stmt SQL_CLOCK = {"doctor_clock",
                                         "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"};
static const struct mg_stmt SQL_OLD = {
    "doctor_old",
    "SELECT pid, extract(epoch FROM now() - xact_start)::bigint, coalesce(application_name, '') FROM pg_stat_activity "
    "WHERE xact_start < now() - make_interval(secs => $1::int) AND datname = current_database() "
    "ORDER BY xact_start LIMIT 1"};
static const struct mg_stmt SQL_CONNECTIONS = {
    "doctor_connections", "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity"};

void mg_doctor_state_dir(struct mg_doctor *d)
{
    const char *path = mg_conf_str(d->conf, MG_OPT_STATE_DIR);
    struct stat st;
    struct statvfs fs;

    if (lstat(path, &st) < 0) {
        mg_doctor_say(
            d, MG_FINDING_WARN, "state",
            "mangod makes it at its first start; its parent must exist and be yours to write, or set MANGO_STATE_DIR",
            "the state folder %s does not exist (%s)", path, mg_conf_origin(d->conf, MG_OPT_STATE_DIR));
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        mg_doctor_say(d, MG_FINDING_BAD, "state", "name a folder of mangod's own in MANGO_STATE_DIR",
                      "%s is not a folder", path);
        return;
    }
    if (st.st_mode & 022)
        mg_doctor_say(d, MG_FINDING_BAD, "state", "chmod go-w on it", "%s may be written by others (mode %03o)", path,
                      (unsigned)(st.st_mode & 0777));
    else if (st.st_uid != geteuid())
        mg_doctor_say(d, MG_FINDING_WARN, "state",
                      "run doctor as the user of mangod, or give the folder to it with chown",
                      "%s belongs to user %u, not to the user of this command", path, (unsigned)st.st_uid);
    else
        mg_doctor_say(d, MG_FINDING_OK, "state", NULL, "%s, mode %03o", path, (unsigned)(st.st_mode & 0777));
    if (statvfs(path, &fs) == 0) {
        uint64_t mib = (uint64_t)fs.f_bavail * fs.f_frsize / (1024 * 1024);
        if (mib < FREE_LOW_MIB)
            mg_doctor_say(d, MG_FINDING_WARN, "disk", "make room: the private database stops when the disk is full",
                          "%" PRIu64 " MiB are free below %s", mib, path);
    }
}

static void say_unreachable(struct mg_doctor *d, const struct mg_err *err, const char *diag)
{
    if (mg_conf_strn(d->conf, MG_OPT_DATABASE_URL))
        mg_doctor_say(
            d, MG_FINDING_BAD, "database",
            "check MANGO_DATABASE_URL, that the server runs, and that it lets this host and user in (pg_hba.conf)",
            "%s%s%s", err->text, *diag ? ": " : "", diag);
    else
        mg_doctor_say(d, MG_FINDING_WARN, "database", "start mangod; the checks of the database need it",
                      "the private database does not run (it runs while mangod does)");
}

void mg_doctor_database(struct mg_doctor *d)
{
    char *conninfo = NULL;
    struct mg_err err = {0};
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_cli_db_locate(d->conf, &conninfo, &err);

    if (rc == MG_OK) {
        d->pg = mg_pg_new(conninfo);
        rc = mg_pg_connect(d->pg, &err);
    }
    if (rc == MG_OK)
        rc = mg_pg_exec(d->pg, &SQL_VERSION, NULL, 0, &r, &err);
    if (rc < 0) {
        say_unreachable(d, &err, d->pg ? mg_pg_diag(d->pg) : "");
        mg_pg_free(d->pg);
        d->pg = NULL;
    } else if (mg_pg_check_pooler(conninfo, &err) < 0) {
        mg_doctor_say(d, MG_FINDING_BAD, "database", "use pool_mode = session, or a direct address", "%s", err.text);
    } else {
        mg_doctor_say(d, MG_FINDING_OK, "database", NULL, "PostgreSQL %.*s, %s", MG_SV_ARG(mg_res_sv(r, 0, 0)),
                      mg_conf_strn(d->conf, MG_OPT_DATABASE_URL) ? "from MANGO_DATABASE_URL" : "the private one");
    }
    free(conninfo);
}

/* The schema, and then a write through it: a server that answers SELECT may refuse those. */
void mg_doctor_schema(struct mg_doctor *d)
{
    struct mg_migrate_report rep = {0};
    struct mg_err err = {0};

    if (!d->pg)
        return;
    if (mg_migrate_check(d->pg, mg_cli_migrations_dir(), &rep, &err) < 0) {
        mg_doctor_say(d, MG_FINDING_BAD, "schema",
                      "run the version of Mango that made it, or restore the backup from before", "%s", err.text);
        return;
    }
    if (rep.was < rep.newest) {
        mg_doctor_say(d, MG_FINDING_WARN, "schema", "mango migrate (mangod does it at its start, too)",
                      "the schema has version %d, this program %d", rep.was, rep.newest);
        return;
    }
    mg_doctor_say(d, MG_FINDING_OK, "schema", NULL, "version %d, as this program's", rep.now);
    if (mg_deployment_probe(d->pg, &err) < 0)
        mg_doctor_say(d, MG_FINDING_BAD, "write",
                      "point MANGO_DATABASE_URL at the primary (target_session_attrs=read-write); look for a full disk",
                      "the database takes no write: %s", err.text);
    else
        mg_doctor_say(d, MG_FINDING_OK, "write", NULL, "a durable write succeeded");
}

void mg_doctor_keys(struct mg_doctor *d)
{
    bool any = false;
    struct mg_err err = {0};

    if (!d->pg || mg_api_key_any(d->pg, &any, &err) < 0)
        return;
    if (any)
        mg_doctor_say(d, MG_FINDING_OK, "keys", NULL, "an API key is active");
    else
        mg_doctor_say(d, MG_FINDING_BAD, "keys", "mango api-key create NAME, or set MANGO_API_KEY for mangod",
                      "no API key is active");
}

void mg_doctor_clock(struct mg_doctor *d)
{
    int64_t best = INT64_MAX, skew_us = 0;

    for (int i = 0; d->pg && i < CLOCK_TRIES; i++) {
        struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
        struct mg_err err;
        int64_t before = mg_wall_us();
        if (mg_pg_exec(d->pg, &SQL_CLOCK, NULL, 0, &r, &err) < 0)
            return;
        int64_t trip = mg_wall_us() - before;
        if (trip < best) {
            best = trip;
            skew_us = before + trip / 2 - mg_res_int(r, 0, 0);
        }
    }
    if (!d->pg)
        return;
    int64_t ms = skew_us / 1000;
    if (ms > SKEW_WARN_MS || ms < -SKEW_WARN_MS)
        mg_doctor_say(
            d, MG_FINDING_WARN, "clock",
            "run an NTP client (systemd-timesyncd, chrony) on both; leases use the database's clock and stay right",
            "this host is %" PRId64 " ms %s the database", ms < 0 ? -ms : ms, ms < 0 ? "behind" : "ahead of");
    else
        mg_doctor_say(d, MG_FINDING_OK, "clock", NULL, "within %" PRId64 " ms of the database's", ms < 0 ? -ms : ms);
}

static void check_nodes(struct mg_doctor *d)
{
    struct mg_node_row *rows = NULL;
    struct mg_err err;
    int n = 0, live = 0;

    if (mg_node_list(d->pg, d->cli->arena, &rows, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++)
        live += rows[i].live;
    mg_doctor_say(d, MG_FINDING_OK, "nodes", NULL, "%d running", live);
    for (int i = 0; i < n; i++)
        if (rows[i].live && !mg_sv_eqz(rows[i].version, MANGO_VERSION))
            mg_doctor_say(d, MG_FINDING_WARN, "nodes", "finish the upgrade: stop the old one",
                          "node %.*s on %.*s runs version %.*s, this program is %s", MG_SV_ARG(rows[i].id),
                          MG_SV_ARG(rows[i].host), MG_SV_ARG(rows[i].version), MANGO_VERSION);
}

/* Field case 30: an old transaction is named by its pid. */
void mg_doctor_activity(struct mg_doctor *d)
{
    struct mg_res *old __attribute__((cleanup(mg_res_cleanup))) = NULL,
                       *used __attribute__((cleanup(mg_res_cleanup))) = NULL;
    struct mg_err err;

    if (!d->pg)
        return;
    check_nodes(d);
    struct mg_sv limit = mg_p_int(d->cli->arena, OLD_XACT_S);
    if (mg_pg_exec(d->pg, &SQL_OLD, &limit, 1, &old, &err) == MG_OK && mg_res_rows(old) > 0)
        mg_doctor_say(
            d, MG_FINDING_WARN, "activity", "end it, if nobody needs it: SELECT pg_terminate_backend(PID)",
            "a transaction of %.*s (pid %.*s) has been open for %.*s s; the queue's dead rows cannot be cleaned up",
            MG_SV_ARG(mg_res_sv(old, 0, 2)), MG_SV_ARG(mg_res_sv(old, 0, 0)), MG_SV_ARG(mg_res_sv(old, 0, 1)));
    if (mg_pg_exec(d->pg, &SQL_CONNECTIONS, NULL, 0, &used, &err) == MG_OK &&
        mg_res_int(used, 0, 0) * 10 > mg_res_int(used, 0, 1) * 9)
        mg_doctor_say(
            d, MG_FINDING_WARN, "activity", "raise max_connections, or lower MANGO_REQUEST_THREADS of the nodes",
            "%" PRId64 " of %" PRId64 " connections are in use", mg_res_int(used, 0, 0), mg_res_int(used, 0, 1));
}
