#include "cmd/worker-args.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const struct mg_worker_flag *find(const struct mg_worker_flag *flags, const char *name, size_t n, int *ret_at)
{
    for (*ret_at = 0; flags->name; flags++, (*ret_at)++)
        if (strlen(flags->name) == n && memcmp(flags->name, name, n) == 0)
            return flags;
    return NULL;
}

static bool complain(const char *what, const char *name, size_t n)
{
    fprintf(stderr, "mango-worker: --%.*s %s; mango-worker COMMAND --help lists the options\n", (int)n, name, what);
    return false;
}

/* A secret is copied and its place in the arguments overwritten: `ps` shows them. */
static const char *keep(struct mg_worker_args *a, const struct mg_worker_flag *f, char *value)
{
    if (!f->secret)
        return value;
    char *copy = a->kept[a->n_kept++] = mg_xstrdup(value);
    memset(value, 'x', strlen(value));
    return copy;
}

void mg_worker_args_done(struct mg_worker_args *a)
{
    for (int i = 0; i < a->n_kept; i++) {
        mg_wipe(a->kept[i], strlen(a->kept[i]));
        free(a->kept[i]);
    }
    a->n_kept = 0;
}

static bool take(struct mg_worker_args *a, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    int at;
    const struct mg_worker_flag *f = find(a->flags, name, n, &at);
    if (!f)
        return complain("is no option of this command", name, n);
    if (!f->arg && equals)
        return complain("takes no value", name, n);
    if (f->arg && !equals && *i + 1 >= argc)
        return complain("needs a value", name, n);
    char *value = equals ? argv[*i] + 2 + n + 1 : f->arg ? argv[++*i] : argv[*i];
    if (f->many && a->n_many == MG_WORKER_MANY_MAX)
        return complain("is given too often", name, n);
    if (f->many)
        a->many[a->n_many++] = value;
    else if (a->value[at])
        return complain("is given twice", name, n);
    a->value[at] = f->arg ? keep(a, f, value) : "";
    return true;
}

static void read_environment(struct mg_worker_args *a)
{
    for (int at = 0; a->flags[at].name; at++) {
        const struct mg_worker_flag *f = &a->flags[at];
        char *v = f->env ? secure_getenv(f->env) : NULL;
        if (!v || !*v)
            continue;
        const char *kept = keep(a, f, v);
        if (!a->value[at])
            a->value[at] = kept;
        if (f->secret)
            (void)unsetenv(f->env);
    }
}

bool mg_worker_args_read(struct mg_worker_args *a, const struct mg_worker_flag *flags, int argc, char **argv)
{
    *a = (struct mg_worker_args){.flags = flags};
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2]) {
            fprintf(stderr, "mango-worker: %s is no option; there are no plain arguments\n", argv[i]);
            return false;
        }
        if (!take(a, argc, argv, &i))
            return false;
    }
    read_environment(a);
    return true;
}

const char *mg_worker_get(const struct mg_worker_args *a, const char *name)
{
    int at;
    return find(a->flags, name, strlen(name), &at) ? a->value[at] : NULL;
}

/* One number with its unit at *p. */
static bool term(const char **p, uint64_t *ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } UNITS[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    char *end;
    if (!isdigit((unsigned char)**p))
        return false;
    double n = strtod(*p, &end);
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        size_t len = strlen(UNITS[i].unit);
        if (strncmp(end, UNITS[i].unit, len) == 0 && !isalpha((unsigned char)end[len])) {
            *ms += (uint64_t)(n * (double)UNITS[i].ms);
            *p = end + len;
            return n < 1e6;
        }
    }
    return false;
}

bool mg_worker_duration(const struct mg_worker_args *a, const char *name, uint32_t max_ms, uint32_t fallback,
                        uint32_t *ret)
{
    const char *v = mg_worker_get(a, name);
    uint64_t ms = 0;
    *ret = fallback;
    if (!v)
        return true;
    bool right = strcmp(v, "0") == 0;
    for (const char *p = v; !right && *p;) {
        if (!term(&p, &ms))
            break;
        right = !*p;
    }
    if (right && ms <= max_ms) {
        *ret = (uint32_t)ms;
        return true;
    }
    fprintf(stderr, "mango-worker: --%s must be a time as 60s, 1m30s or 500ms, at most %us; got %s\n", name,
            max_ms / 1000, v);
    return false;
}

void mg_worker_flags_help(FILE *out, const struct mg_worker_flag *f)
{
    for (; f->name; f++) {
        char left[64];
        (void)snprintf(left, sizeof(left), "--%s%s%s", f->name, f->arg ? " " : "", f->arg ? f->arg : "");
        fprintf(out, "  %-28s %s%s%s%s\n", left, f->help, f->env ? " (" : "", f->env ? f->env : "", f->env ? ")" : "");
    }
}
