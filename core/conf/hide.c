/* Secrets out of what other processes of the same user can read: /proc/PID/environ and /proc/PID/cmdline show the
 * memory that the kernel filled at the start, and nothing else. */
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "conf/internal.h"

static bool is_secret_variable(struct mg_sv name)
{
    for (int o = 0; o < MG_OPT_COUNT; o++)
        if (mg_opt_table[o].secret && mg_sv_eqz(name, mg_opt_table[o].env))
            return true;

    return false;
}

static void move_environment(void)
{
    size_t n = 0, kept = 0;

    while (environ && environ[n])
        n++;
    char **moved = mg_xcalloc(n + 1, sizeof(*moved));
    for (size_t i = 0; i < n; i++) {
        struct mg_sv rest = mg_sv_of(environ[i]);
        if (!is_secret_variable(mg_sv_split(&rest, '=')))
            moved[kept++] = mg_xstrdup(environ[i]);
        mg_wipe(environ[i], strlen(environ[i]));
    }
    environ = moved; /* lives as long as the process */
}

void mg_conf_hide(char **argv)
{
    for (char **arg = argv; arg && *arg; arg++) {
        struct mg_sv value = mg_sv_of(*arg);
        if (!mg_sv_starts(value, "--"))
            continue;
        value = mg_sv_from(value, 2);
        enum mg_opt o = conf_find(mg_sv_split(&value, '='));
        if (o < MG_OPT_COUNT && mg_opt_table[o].secret && value.len)
            memset((char *)value.ptr, '*', value.len);
    }
    move_environment();
}
