#include "worker/tool-env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sv.h"

/* A name, or the beginning of names where it ends in '*'. */
static const char *const ALLOWED[] = {
    "PATH",      "HOME",   "LANG",       "LANGUAGE",    "LC_*",        "TZ",         "USER",        "LOGNAME",
    "SHELL",     "TMPDIR", "http_proxy", "https_proxy", "no_proxy",    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "JAVA_HOME", "GOPATH", "GOROOT",     "CARGO_HOME",  "RUSTUP_HOME", "NODE_PATH",  "VIRTUAL_ENV", "PYTHONPATH",
};

/* Never, whatever the operator lists: what a worker is told by. */
static const char *const KEPT[] = {"ANTHROPIC_*", "MANGO_*"};

static bool matches(struct mg_sv name, struct mg_sv pattern)
{
    if (pattern.len && pattern.ptr[pattern.len - 1] == '*')
        return name.len >= pattern.len - 1 && memcmp(name.ptr, pattern.ptr, pattern.len - 1) == 0;
    return mg_sv_eq(name, pattern);
}

static bool in_table(struct mg_sv name, const char *const *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (matches(name, mg_sv_of(table[i])))
            return true;
    return false;
}

bool mg_tool_env_passes(const char *name, unsigned long len, const char *pass)
{
    struct mg_sv key = {name, len}, rest = mg_sv_of(pass ? pass : "");

    if (in_table(key, KEPT, sizeof(KEPT) / sizeof(KEPT[0])))
        return false;
    if (in_table(key, ALLOWED, sizeof(ALLOWED) / sizeof(ALLOWED[0])))
        return true;
    while (rest.len) {
        struct mg_sv one = mg_sv_trim(mg_sv_split(&rest, ','));
        if (one.len && matches(key, one))
            return true;
    }
    return false;
}

void mg_tool_env_init(struct mg_tool_env *e)
{
    const char *pass = secure_getenv(MG_TOOL_ENV_VARIABLE);
    size_t n = 0;

    for (char **v = environ; v && *v && n < MG_TOOL_ENV_MAX - 1; v++) {
        const char *eq = strchr(*v, '=');
        if (eq && mg_tool_env_passes(*v, (unsigned long)(eq - *v), pass))
            e->v[n++] = mg_xstrdup(*v);
    }
    e->v[n++] = mg_xstrdup("TERM=dumb");
    e->v[n] = NULL;
}

void mg_tool_env_done(struct mg_tool_env *e)
{
    for (size_t i = 0; e->v[i]; i++)
        free(e->v[i]);
}
