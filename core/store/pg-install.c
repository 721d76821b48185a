#include "store/pg-install.h"

#include <glob.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sv.h"
#include "store/child.h"

enum { RUN_MS = 10000, OUTPUT_MAX = 4096 };

static bool has_programs(const char *dir)
{
    static const char *const programs[] = {"initdb", "postgres"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        int n = snprintf(path, sizeof(path), "%s/%s", dir, programs[i]);
        if (n < 0 || n >= (int)sizeof(path) || access(path, X_OK) != 0)
            return false;
    }
    return true;
}

/* "postgres (PostgreSQL) 15.20 (Debian …)" -> 15; 0 when it does not say so. */
static int ask_version(const char *dir)
{
    char path[PATH_MAX];
    int status = 0;
    snprintf(path, sizeof(path), "%.4000s/postgres", dir);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(OUTPUT_MAX);
    if (mg_child_run((const char *const[]){path, "--version", NULL}, NULL, RUN_MS, &out, &status, NULL) < 0 ||
        status != 0)
        return 0;
    const char *digits = out.ptr ? strpbrk(out.ptr, "0123456789") : NULL;
    return digits ? (int)strtol(digits, NULL, 10) : 0;
}

static bool better(const struct mg_pg_install *have, const char *dir, int major, int want)
{
    return major >= MG_PG_MAJOR_MIN && strlen(dir) < sizeof(have->bindir) &&
           (want ? major == want && !have->major : major > have->major);
}

static void consider(struct mg_pg_install *have, const char *dir, int major, int want)
{
    if (!better(have, dir, major, want))
        return;
    snprintf(have->bindir, sizeof(have->bindir), "%s", dir);
    have->major = major;
}

/* Folders whose name tells the version: Debian's and the PostgreSQL project's RPMs'. */
static void look_in_usual(struct mg_pg_install *have, int want)
{
    static const struct {
        const char *pattern;
        size_t digits; /* where the version begins */
    } places[] = {{"/usr/lib/postgresql/*/bin", 20}, {"/usr/pgsql-*/bin", 11}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        glob_t g = {0};
        if (glob(places[i].pattern, 0, NULL, &g) == 0) {
            for (size_t k = 0; k < g.gl_pathc; k++) {
                if (has_programs(g.gl_pathv[k]))
                    consider(have, g.gl_pathv[k], (int)strtol(g.gl_pathv[k] + places[i].digits, NULL, 10), want);
            }
        }
        globfree(&g);
    }
}

static void ask_pg_config(struct mg_pg_install *have, int want)
{
    static const char *const paths[] = {"/usr/bin/pg_config", "/usr/local/bin/pg_config",
                                        "/usr/local/pgsql/bin/pg_config"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        int status = 0;
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(OUTPUT_MAX);
        if (access(paths[i], X_OK) != 0 ||
            mg_child_run((const char *const[]){paths[i], "--bindir", NULL}, NULL, RUN_MS, &out, &status, NULL) < 0 ||
            status != 0 || !out.ptr)
            continue;
        out.ptr[strcspn(out.ptr, "\n")] = '\0';
        if (has_programs(out.ptr))
            consider(have, out.ptr, ask_version(out.ptr), want);
    }
}

mg_rc mg_pg_install_find(const char *bindir, int want, struct mg_pg_install *ret, struct mg_err *err)
{
    struct mg_pg_install found = {.major = 0}, any = {.major = 0};
    if (!bindir || !*bindir)
        bindir = secure_getenv("MANGO_PG_BINDIR");
    if (bindir && *bindir) {
        if (!has_programs(bindir))
            return mg_err_set(err, MG_ECONFIG, "MANGO_PG_BINDIR: %s does not hold initdb and postgres", bindir);
        consider(&any, bindir, ask_version(bindir), 0);
        consider(&found, any.bindir, any.major, want);
    } else {
        look_in_usual(&found, want);
        if (!found.major)
            ask_pg_config(&found, want);
        if (!found.major) {
            look_in_usual(&any, 0);
            ask_pg_config(&any, 0);
        }
    }
    if (found.major) {
        *ret = found;
        return MG_OK;
    }
    if (want && any.major)
        return mg_err_set(err, MG_ECONFIG,
                          "the embedded database was made by PostgreSQL %d, but only PostgreSQL %d is installed: "
                          "install postgresql-%d, or "
                          "move the data with pg_upgrade",
                          want, any.major, want);
    return mg_err_set(
        err, MG_ECONFIG,
        "no PostgreSQL server (version %d or newer) is installed, which the embedded database needs: install it "
        "(Debian: "
        "apt-get install postgresql), set MANGO_PG_BINDIR to the folder of initdb, or set MANGO_DATABASE_URL",
        MG_PG_MAJOR_MIN);
}
