/* The configuration file, and the same text as a value of each option. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "conf/conf.h"
#include "fuzz/fuzz.h"

/* libconfig 1.5 itself leaks the text before an unterminated string. A startup that fails ends the process anyway. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig\n";
}

static void load(const struct mg_conf_source *src)
{
    struct mg_conf *c = NULL;
    struct mg_err err = {0};
    mg_rc rc = mg_conf_load(src, &c, &err);
    fuzz_check_err(rc, &err);
    if (rc == MG_OK) {
        struct mg_buf b = MG_BUF_INIT(4 * 1024 * 1024);
        (void)!mg_conf_print(c, &b);
        (void)!mg_conf_plugin_json(c, "local", &b);
        mg_buf_done(&b);
    }
    mg_conf_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* libconfig takes include directives: only files without one are ours to judge. */
    if (size > 16384 || memmem(data, size, "@include", 8))
        return 0;
    int fd = memfd_create("mango.conf", 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    load(&(struct mg_conf_source){.file = path});
    close(fd);

    char arg[512];
    enum mg_opt o = size ? data[0] % MG_OPT_COUNT : 0;
    snprintf(arg, sizeof(arg), "--%s=%.*s", mg_opt_table[o].name, (int)(size ? size - 1 : 0),
             (const char *)data + (size ? 1 : 0));
    for (char *p = arg + 2; *p && *p != '='; p++)
        *p = *p == '_' ? '-' : *p;
    load(&(struct mg_conf_source){.args = (const char *const[]){arg, NULL}});
    return 0;
}
