/* A plugin that does nothing, with one thing wrong that a -D names. Built by tests/unit/test-plugin.c, one .so for each refusal. */
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "still.h"

#ifndef NAME
#define NAME "variant"
#endif
#ifndef MAGIC
#define MAGIC MANGO_PLUGIN_MAGIC
#endif
#ifndef MAJOR
#define MAJOR MANGO_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR MANGO_ABI_MINOR
#endif
#ifndef SIZE
#define SIZE sizeof(struct mango_plugin)
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(struct mango_sandbox_ops)
#endif
#ifndef KIND
#define KIND MANGO_KIND_SANDBOX
#endif
#ifndef CAPS
#define CAPS 0
#endif
#ifndef REQUIRED_HOST
#define REQUIRED_HOST 0
#endif
#ifndef EXEC
#define EXEC op_exec
#endif
#ifndef INIT
#define INIT init_ok
#endif
#ifndef OPS
#define OPS &ops.known
#endif

static mango_status op_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                              struct mango_sandbox_ref *ret)
{
    (void)ctx, (void)call, (void)spec;
    mango_status s = host->buf_append(host, ret->id, "one", 3);
    return s < 0 ? s : host->buf_append(host, ret->root, "/w", 2);
}
__attribute__((unused)) static mango_status op_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                                                    const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    (void)ctx, (void)id, (void)req;
    if (host->cancelled(host, call))
        return MANGO_ECANCELED;
    ret->exited = 1;
    return MANGO_OK;
}
static mango_status op_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_read_req *req, int32_t *ret_eof)
{
    (void)ctx, (void)id, (void)req, (void)ret_eof;
    return host->err_set(host, call, MANGO_ERETRY, "come back later", "req-7", 1500);
}
static mango_status op_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_write_req *req)
{
    (void)ctx, (void)call, (void)id, (void)req;
    return -77; /* a status that ABI 1 does not know */
}
static mango_status op_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                            uint32_t flags, struct mango_stat *ret)
{
    (void)ctx, (void)id, (void)path, (void)flags, (void)ret;
    return host->http_call(host, call, NULL, NULL);
}
__attribute__((unused)) static mango_status init_fails(const struct mango_host *h, const struct mango_call *call,
                                                       struct mango_sv config, void **ret_ctx)
{
    (void)config, (void)ret_ctx;
    return h->err_set(h, call, MANGO_EDENIED, "the key in VARIANT_KEY was refused", NULL, 0);
}
/* Takes back one capability of the two that its descriptor has. */
__attribute__((unused)) static mango_status init_without(const struct mango_host *h, const struct mango_call *call,
                                                         struct mango_sv config, void **ret_ctx)
{
    h->caps_without(h, MANGO_CAP_LIMITS);
    return init_ok(h, call, config, ret_ctx);
}

/* Everything that makes unloading dangerous. */
static pthread_key_t key;
static _Thread_local int *tls;
static void at_end(void)
{
}
static void key_gone(void *p)
{
    free(p);
}
static void *thread(void *arg)
{
    tls = arg;
    pthread_setspecific(key, malloc(8));
    for (;;)
        pause();
    return NULL;
}
__attribute__((unused)) static mango_status init_sticky(const struct mango_host *h, const struct mango_call *call,
                                                        struct mango_sv config, void **ret_ctx)
{
    pthread_t t;
    static int value;
    atexit(at_end);
    pthread_key_create(&key, key_gone);
    pthread_setspecific(key, malloc(8));
    tls = &value;
    pthread_create(&t, NULL, thread, &value);
    pthread_detach(t);
    return getenv("VARIANT_FAILS") ? init_fails(h, call, config, ret_ctx) : init_ok(h, call, config, ret_ctx);
}

static void on_signal(int sig)
{
    (void)sig;
}
__attribute__((unused)) static mango_status init_rude(const struct mango_host *h, const struct mango_call *call,
                                                      struct mango_sv config, void **ret_ctx)
{
    sigset_t all;
    umask(0);
    (void)!chdir("/");
    setlocale(LC_ALL, "C.UTF-8");
    signal(SIGPIPE, on_signal);
    signal(SIGTERM, SIG_IGN);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return init_ok(h, call, config, ret_ctx);
}

/* More than this server knows: a plugin of a later minor that says it needs only this one. */
static const struct {
    struct mango_sandbox_ops known;
    void (*later[4])(void);
} ops = {.known = {.struct_size = OPS_SIZE,
                   .create = op_create,
                   .attach = op_attach,
                   .exec = EXEC,
                   .read = op_read,
                   .write = op_write,
                   .stat = op_stat,
                   .destroy = op_destroy,
                   .health = op_health}};

static const struct {
    struct mango_plugin known;
    void (*later[4])(void);
} plugin = {.known = {.magic = MAGIC,
                      .abi_major = MAJOR,
                      .abi_minor = MINOR,
                      .struct_size = SIZE,
                      .kind = KIND,
                      .name = NAME,
                      .version = "1",
                      .license = "MIT",
                      .summary = "for tests",
                      .caps = CAPS,
                      .required_host = REQUIRED_HOST,
                      .init = INIT,
                      .fini = fini,
                      .sandbox = OPS}};

#ifndef NO_ENTRY
MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin.known;
}
#endif

#ifdef SECOND_ENTRY
MANGO_EXPORT const struct mango_plugin *mango_plugin_entry_v2(void);
MANGO_EXPORT const struct mango_plugin *mango_plugin_entry_v2(void)
{
    return &plugin.known;
}
#endif

#ifdef CLASHES
/* Names that the server has too, and that other libraries have. */
MANGO_EXPORT int main(void);
MANGO_EXPORT int main(void)
{
    return 99;
}
MANGO_EXPORT void mg_log_write(void);
MANGO_EXPORT void mg_log_write(void)
{
    abort();
}
MANGO_EXPORT void *mg_xmalloc(unsigned long n);
MANGO_EXPORT void *mg_xmalloc(unsigned long n)
{
    (void)n;
    abort();
}
MANGO_EXPORT void *json_object(void);
MANGO_EXPORT void *json_object(void)
{
    abort();
}
MANGO_EXPORT void *curl_easy_init(void);
MANGO_EXPORT void *curl_easy_init(void)
{
    abort();
}
#endif

#ifdef MISSING_SYMBOL
extern void mango_test_not_there(void);
MANGO_EXPORT void user(void);
MANGO_EXPORT void user(void)
{
    mango_test_not_there();
}
#endif

#ifdef CRASHES
__attribute__((constructor)) static void crash(void)
{
    kill(getpid(), SIGKILL);
}
#endif
