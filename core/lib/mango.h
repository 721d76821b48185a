/* libmango: the Mango server inside of another program.
 *
 *   struct mango_options o = {.struct_size = sizeof(o), .settings = (const char *[]){"listen=127.0.0.1:0", "sandbox=local", NULL}};
 *   char err[512];
 *   struct mango *m;
 *   if (mango_open(&o, &m, err, sizeof(err)) != 0)
 *       die(err);
 *   printf("http://127.0.0.1:%d\n", mango_port(m));
 *   ...
 *   mango_close(m);
 *
 * The program speaks to it as every client does, over HTTP at mango_port(). The library starts threads of its own, installs no signal
 * handler, does not exit, and writes nothing but what the log function gets. A program that uses it ignores SIGPIPE. One server a
 * process at a time. */
#ifndef MANGO_MANGO_H
#define MANGO_MANGO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mango; /* a running server */

/* level: 0 error, 1 warning, 2 information, 3 debug. line has no newline and is not NUL-terminated; borrowed for the call. Any thread. */
typedef void mango_log_fn(void *ctx, int32_t level, const char *line, size_t len);

struct mango_options {
    uint32_t struct_size;        /* sizeof(struct mango_options) */
    uint32_t use_environment;    /* not 0: MANGO_* variables of the process count, below settings and above the file */
    const char *const *settings; /* "name=value" with the names of mango.conf, NULL at the end; may be NULL */
    const char *config_file;     /* a mango.conf; NULL: none is read */
    const char *migrations_dir;  /* NULL: the installed one */
    const char *plugin_dir;      /* NULL: the installed one; the setting plugin_dir wins */
    mango_log_fn *log;           /* NULL: nothing is logged */
    void *log_ctx;
};

/* Opens the database, applies migrations, loads the sandbox plugin, starts to listen; returns when the server is ready. All strings are
 * copied. 0, or negative with one clear line in err (cut at err_size, always NUL-terminated); err may be NULL. */
int32_t mango_open(const struct mango_options *options, struct mango **ret, char *err, size_t err_size);
int32_t mango_port(const struct mango *m); /* what it listens on, for the setting listen=...:0 */
/* Tells the streams, lets running handlers end, hands the turns on, stops the embedded database. NULL is fine. */
void mango_close(struct mango *m);
const char *mango_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#endif
