#include "support/plugin-build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMAND_MAX = 8192 };

/* The plugin runs under the same sanitizer as the test. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread"
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZE "-fsanitize=thread"
#elif __has_feature(address_sanitizer)
#define SANITIZE "-fsanitize=address,undefined"
#endif
#endif
#ifndef SANITIZE
#define SANITIZE ""
#endif

const char *plugin_srcdir(void)
{
    static char dir[PLUGIN_PATH_MAX];
    const char *env = getenv("MANGO_TEST_SRCDIR");
    if (env && *env)
        return env;
    return getcwd(dir, sizeof(dir)) ? dir : ".";
}

void plugin_dir_make(char out[PLUGIN_PATH_MAX])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(out, PLUGIN_PATH_MAX, "%s/mango-plugins-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(out))
        abort();
}

bool plugin_sh(const char *fmt, ...)
{
    char command[COMMAND_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    int status = system(command);
    return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void plugin_dir_remove(const char *dir)
{
    (void)plugin_sh("rm -rf '%s'", dir);
}

static const char *compiler(void)
{
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

bool plugin_build(const char *dir, const char *name, const char *sources, const char *flags)
{
    return plugin_sh("cd '%s' && %s -std=gnu17 -D_GNU_SOURCE -g -O1 -fvisibility=hidden " SANITIZE
                     " -shared -fPIC -Iplugin-api -Iplugins %s -o '%s/%s.so' %s && chmod 755 '%s/%s.so'",
                     plugin_srcdir(), compiler(), flags, dir, name, sources, dir, name);
}

bool plugin_build_local(const char *dir)
{
    return plugin_build(dir, "local", "plugins/local/*.c plugins/common/*.c plugins/common/hostbox/*.c",
                        "-Wl,-z,now") &&
           plugin_sh("cd '%s' && %s -std=gnu17 -D_GNU_SOURCE -O2 -Iplugins -o '%s/mango-local-runner' "
                     "plugins/local/runner/*.c plugins/common/runner/*.c",
                     plugin_srcdir(), compiler(), dir);
}

#define LOCAL_BUT_ITS_DESCRIPTOR " plugins/common/*.c plugins/common/hostbox/*.c"

bool plugin_build_liar(const char *dir)
{
    return plugin_build(dir, "liar", "tests/abi/liar.c" LOCAL_BUT_ITS_DESCRIPTOR, "-I.");
}

bool plugin_build_limp(const char *dir)
{
    return plugin_build(dir, "limp", "tests/abi/limp.c" LOCAL_BUT_ITS_DESCRIPTOR, "-I.");
}
