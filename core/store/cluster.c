/* The cluster of the embedded server: whose it is, where it lies, how it is made. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/mem.h"
#include "crypto/hash.h"
#include "store/child.h"
#include "store/embedded-internal.h"

enum { INITDB_MS = 120000, OUTPUT_MAX = 256 * 1024 /* of initdb */ };

static const char settings[] =
    "\n# mangod's choices; change them here, mangod does not write this file again.\n"
    "max_connections = 60\n"
    "shared_buffers = 128MB\n"
    "synchronous_commit = on\n"
    "jit = off\n"
    "timezone = 'UTC'\n"
    "log_timezone = 'UTC'\n"
    "# Errors of statements are mangod's to report; with their text they would put users' words into the log.\n"
    "log_min_messages = log\n"
    "log_min_error_statement = panic\n"
    "log_error_verbosity = terse\n"
    "log_checkpoints = off\n";

char *mg_text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return text;
}

/* ---- who and where ---- */

static mg_rc choose_user(struct mg_embedded *e, struct mg_err *err)
{
    static const char *const names[] = {"mango", "postgres"};
    e->uid = geteuid();
    e->gid = getegid();
    if (e->uid != 0)
        return MG_OK;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct passwd pw, *found = NULL;
        char space[4096];
        if (getpwnam_r(names[i], &pw, space, sizeof(space), &found) == 0 && found && pw.pw_uid != 0) {
            snprintf(e->user, sizeof(e->user), "%s", names[i]);
            e->uid = pw.pw_uid;
            e->gid = pw.pw_gid;
            return MG_OK;
        }
    }
    return mg_err_set(
        err, MG_ECONFIG,
        "PostgreSQL does not run as root, and there is no user mango or postgres to run it: make one (useradd "
        "--system mango), or start mangod as an ordinary user");
}

static bool may_enter(const struct stat *st, const struct mg_embedded *e)
{
    mode_t bit = st->st_uid == e->uid ? S_IXUSR : st->st_gid == e->gid ? S_IXGRP : S_IXOTH;
    return st->st_mode & bit;
}

/* The other user must be able to walk to its folder. Our own folder is opened for walking, not for listing. */
static mg_rc open_the_way(struct mg_embedded *e, const struct mg_state_dir *dir, struct mg_err *err)
{
    struct stat st;
    if (!*e->user)
        return MG_OK;
    if (fstat(dir->fd, &st) < 0 || fchmod(dir->fd, (st.st_mode & 07777) | S_IXGRP | S_IXOTH) < 0)
        return mg_err_set(err, MG_ECONFIG, "state folder %s: its mode cannot be set: %s", dir->path, strerror(errno));
    mg_autofree char *path = mg_xstrdup(dir->path);
    for (char *slash = strrchr(path, '/'); slash && slash > path; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (stat(path, &st) < 0 || !may_enter(&st, e))
            return mg_err_set(
                err, MG_ECONFIG,
                "state folder %s: user %s, as whom PostgreSQL runs, may not pass through %s: choose another "
                "place (MANGO_STATE_DIR), or chmod o+x",
                dir->path, e->user, path);
    }
    return MG_OK;
}

/* A folder of the user that runs PostgreSQL, for nobody else. */
static mg_rc private_dir(const char *path, const struct mg_embedded *e, struct mg_err *err)
{
    bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return mg_err_set(err, MG_ECONFIG, "%s cannot be made: %s", path, strerror(errno));
    mg_autofd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return mg_err_set(err, MG_ECONFIG, "%s is not a folder that can be used: %s", path, strerror(errno));
    if (made && *e->user && fchown(fd, e->uid, e->gid) < 0)
        return mg_err_set(err, MG_ECONFIG, "%s cannot be given to user %s: %s", path, e->user, strerror(errno));
    if (!made && st.st_uid != e->uid)
        return mg_err_set(
            err, MG_ECONFIG,
            "%s belongs to user %u, PostgreSQL would run as user %u: start mangod as before, or chown -R it", path,
            (unsigned)st.st_uid, (unsigned)e->uid);
    if (!made && (st.st_mode & 077) && fchmod(fd, 0700) < 0)
        return mg_err_set(err, MG_ECONFIG, "%s: other users may enter it, and its mode cannot be set", path);
    return MG_OK;
}

/* The socket lies in the state folder, or, where its path would be too long for the kernel, in a folder named by a hash: so too where a
 * comma would make libpq take it for a list of hosts. */
static char *socket_dir(const char *state_path, uid_t uid)
{
    char *near = mg_text_of("%s/pg/run", state_path);
    char name[32];
    snprintf(name, sizeof(name), "/.s.PGSQL.%d", MG_EMBEDDED_PORT);
    if (!strchr(near, ',') && strlen(near) + strlen(name) < sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return near;
    free(near);
    char hash[MG_SHA256_HEX];
    mg_sha256_hex(mg_sv_of(state_path), hash);
    return mg_text_of("%s/mango-%u-%.16s", geteuid() == 0 ? "/run" : "/tmp", (unsigned)uid, hash);
}

/* libpq's quoting of a value. */
char *mg_embedded_conninfo_of(const char *socket, const char *database)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    mg_buf_str(&b, "host='");
    for (const char *p = socket; *p; p++) {
        if (*p == '\'' || *p == '\\')
            mg_buf_char(&b, '\\');
        mg_buf_char(&b, *p);
    }
    mg_buf_printf(&b, "' port=%d user=mango dbname=%s", MG_EMBEDDED_PORT, database);
    return mg_buf_steal(&b, NULL);
}

/* ---- the cluster ---- */

static int cluster_version(const struct mg_embedded *e)
{
    mg_autofree char *path = mg_text_of("%s/PG_VERSION", e->data);
    mg_autofd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[16] = "";
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return 0;
    return (int)strtol(text, NULL, 10);
}

static mg_rc run(const struct mg_embedded *e, const char *const *argv, const char *what, struct mg_err *err)
{
    int status = 0;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(OUTPUT_MAX);
    mg_rc rc = mg_child_run(argv, *e->user ? e->user : NULL, INITDB_MS, &out, &status, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "%s", what);
    if (status == 0)
        return MG_OK;
    struct mg_sv said = mg_sv_trim(mg_buf_view(&out));
    return mg_err_set(err, MG_ECONFIG, "%s failed with status %d: %.*s", what, status,
                      said.len > 500 ? 500 : (int)said.len, said.ptr);
}

static mg_rc append_settings(const char *fresh, struct mg_err *err)
{
    mg_autofree char *path = mg_text_of("%s/postgresql.conf", fresh);
    mg_autofd int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    size_t n = sizeof(settings) - 1;
    if (fd < 0 || write(fd, settings, n) != (ssize_t)n || fsync(fd) < 0)
        return mg_err_set(err, MG_ECONFIG, "%s cannot be written: %s", path, strerror(errno));
    return MG_OK;
}

/* Made beside and renamed, so that an initdb that was killed leaves nothing that looks like a cluster. */
static mg_rc make_cluster(struct mg_embedded *e, struct mg_err *err)
{
    mg_autofree char *fresh = mg_text_of("%s/data.new", e->root);
    mg_autofree char *initdb = mg_text_of("%s/initdb", e->install.bindir);
    const char *const clean[] = {"/bin/rm", "-rf", "--", fresh, NULL};
    const char *const make[] = {initdb, "-D", fresh, "-U", "mango", "-A", "trust", "-E", "UTF8", "--locale=C", NULL};
    mg_rc rc = run(e, clean, "removing an unfinished cluster", err);
    if (rc == 0)
        rc = run(e, make, "initdb", err);
    if (rc == 0)
        rc = append_settings(fresh, err);
    if (rc < 0)
        return rc;
    mg_autofd int dir = open(e->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rename(fresh, e->data) < 0 || dir < 0 || fsync(dir) < 0)
        return mg_err_set(err, MG_ECONFIG, "%s cannot be put in its place: %s", fresh, strerror(errno));
    return MG_OK;
}

mg_rc mg_cluster_prepare(struct mg_embedded *e, const struct mg_state_dir *dir, const char *bindir, struct mg_err *err)
{
    mg_rc rc = choose_user(e, err);
    if (rc == 0)
        rc = open_the_way(e, dir, err);
    if (rc < 0)
        return rc;
    e->root = mg_text_of("%s/pg", dir->path);
    e->data = mg_text_of("%s/data", e->root);
    e->log = mg_text_of("%s/postgresql.log", dir->path);
    e->socket = socket_dir(dir->path, e->uid);
    e->conninfo = mg_embedded_conninfo_of(e->socket, "mango");
    rc = private_dir(e->root, e, err);
    if (rc == 0)
        rc = private_dir(e->socket, e, err);
    if (rc < 0)
        return rc;
    int have = cluster_version(e);
    rc = mg_pg_install_find(bindir, have, &e->install, err);
    if (rc == 0 && have == 0)
        rc = make_cluster(e, err);
    return rc;
}
