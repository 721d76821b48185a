/* A sandbox plugin under direct control, for tests and benchmarks of backends.
 *
 *   drive-sandbox PLUGIN_DIR NAME
 *
 * Each line of standard input is a request: a number, an operation and its words, with blanks between them; inside of a
 * word everything but letters and digits may be %XX, and - is the empty word. Each runs on a thread of its own; the
 * answer is one line of JSON on standard output with the number as "n" and the operation's "status". `cancel N` fires
 * the token of request N. Labels are 32 hex digits; the owner is the label with which the program was started last.
 *
 *   create LABEL OWNER NETWORK MEMORY CPU PIDS DISK     NETWORK: none open limited=HOST,HOST...; 0: the default
 *   attach LABEL OWNER      destroy LABEL      detach LABEL      list OWNER      health
 *   mount LABEL OWNER SOURCE TARGET                     create with one read-only mount
 *   exec LABEL LIMIT_MS MAX_OUTPUT SCRIPT STDIN
 *   stream LABEL PATH BYTES                             writes a file of so many bytes from a source
 *   read LABEL PATH OFFSET MAX      write LABEL PATH CONTENT      stat LABEL PATH
 *   pause LABEL   resume LABEL   snapshot LABEL   unsnapshot NAME   fork NAME LABEL OWNER
 *   pack LABEL PATH FILE   unpack LABEL PATH FILE       archives to and from a file of this machine
 *   time LABEL N SCRIPT                                 N commands one after the other: "p50" and "p99" in ms
 *   pings N SOCKET                                      N calls of health, and N GET /_ping by one handle of libcurl, to an
 *                                                       Engine's socket: "p50_us" and "raw_p50_us"
 *   many LABELS SECONDS SCRIPT                          one thread for each of LABELS (with commas): "rate" commands/s */
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "egress/service.h"
#include "json/write.h"
#include "plugin/net.h"
#include "plugin/plugin.h"

enum {
    WORDS_MAX = 12,
    LINE_MAX_BYTES = 8 * 1024 * 1024,
    CALLS_MAX = 4096,
    CALL_S = 120,
    OUTPUT_MAX = 64 * 1024 * 1024,
    PIECE = 64 * 1024,
};

struct job {
    long n;
    char *line;
    char *words[WORDS_MAX];
    int n_words;
    struct mg_cancel *cancel;
};

static struct mg_plugin *plugin;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mg_cancel *cancels[CALLS_MAX]; /* by number, guarded by lock */

static struct mango_sv sv(const char *z)
{
    return (struct mango_sv){z, strlen(z)};
}

static uint64_t number(const struct job *j, int i)
{
    return i < j->n_words ? strtoull(j->words[i], NULL, 10) : 0;
}

static const char *word(const struct job *j, int i)
{
    return i < j->n_words ? j->words[i] : "";
}

static void decode(char *z)
{
    char *to = z;
    if (strcmp(z, "-") == 0)
        *z = '\0';
    for (const char *p = z; *p; to++) {
        char hex[3] = {p[0] == '%' ? p[1] : '\0', p[0] == '%' && p[1] ? p[2] : '\0', '\0'};
        *to = hex[0] && hex[1] ? (char)strtoul(hex, NULL, 16) : *p;
        p += hex[0] && hex[1] ? 3 : 1;
    }
    *to = '\0';
}

/* "mango-LABEL", "session-LABEL": what create gave for the label. */
struct box {
    char label[40], id[1100];
};
static struct box boxes[CALLS_MAX];
static int n_boxes;

static void remember(const char *label, struct mg_sv id)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_boxes && strcmp(boxes[i].label, label) != 0)
        i++;
    if (i < CALLS_MAX) {
        (void)snprintf(boxes[i].label, sizeof(boxes[i].label), "%s", label);
        (void)snprintf(boxes[i].id, sizeof(boxes[i].id), "%.*s", MG_SV_ARG(id));
        n_boxes = i == n_boxes ? n_boxes + 1 : n_boxes;
    }
    pthread_mutex_unlock(&lock);
}

static void id_of(const char *label, char out[1100])
{
    bool folder = strcmp(plugin->name, "docker") != 0; /* local and srt: the name of the folder */
    (void)snprintf(out, 1100, "%s-%s", folder ? "session" : "mango", label);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_boxes; i++) {
        if (strcmp(boxes[i].label, label) == 0)
            (void)snprintf(out, 1100, "%s", boxes[i].id);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the filtering proxy: with MANGO_STATE_DIR, where its doors are ---- */

static struct mg_egress *egress;

static mango_status egress_open(void *ctx, const struct mango_call *call, const struct mango_egress_req *req,
                                struct mango_egress *ret)
{
    (void)ctx;
    return mg_egress_service_open(egress, mg_sv_n("", 0), call, req, ret);
}

static void egress_close(void *ctx, struct mango_sv label)
{
    (void)ctx;
    mg_egress_door_close(egress, mg_sv_n(label.ptr, label.len));
}

static mg_rc start_egress(struct mg_plugin_services *services, struct mg_err *err)
{
    struct mg_egress_opts o = {.state_dir = getenv("MANGO_STATE_DIR")};
    const char *networks = getenv("MANGO_EGRESS_NETWORKS");
    if (!o.state_dir)
        return MG_OK;
    services->egress_open = egress_open;
    services->egress_close = egress_close;
    mg_rc rc = mg_egress_networks_parse(mg_sv_of(networks ? networks : ""), &o.networks, err);
    return rc < 0 ? rc : mg_egress_open(&o, &egress, err);
}

/* ---- operations; each returns the status and writes members of its own ---- */

static mango_status open_box(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    const char *op = j->words[1];
    bool fork_it = strcmp(op, "fork") == 0;
    const char *label = word(j, fork_it ? 3 : 2), *owner = word(j, fork_it ? 4 : 3), *net = word(j, 4);
    struct mango_sv hosts[16];
    struct mango_network network = {.struct_size = sizeof(network), .mode = MANGO_NET_NONE, .hosts = hosts};
    if (strcmp(op, "create") == 0 && strcmp(net, "open") == 0)
        network.mode = MANGO_NET_OPEN;
    mg_autofree char *list = mg_xstrdup(strncmp(net, "limited=", 8) == 0 ? net + 8 : "");
    char *save = NULL;
    for (char *h = strtok_r(list, ",", &save); h && network.n_hosts < 16; h = strtok_r(NULL, ",", &save)) {
        network.mode = MANGO_NET_LIMITED;
        hosts[network.n_hosts++] = sv(h);
    }
    const struct mango_mount m = {.struct_size = sizeof(m), .source = sv(word(j, 4)), .target = sv(word(j, 5))};
    bool mount = strcmp(op, "mount") == 0, create = strcmp(op, "create") == 0;
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec),
                                      .label = sv(label),
                                      .owner = sv(owner),
                                      .network = &network,
                                      .memory_bytes = create ? number(j, 5) : 0,
                                      .cpu_millis = create ? (uint32_t)number(j, 6) : 0,
                                      .pids = create ? (uint32_t)number(j, 7) : 0,
                                      .disk_bytes = create ? number(j, 8) : 0,
                                      .mounts = &m,
                                      .n_mounts = mount ? 1 : 0};
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(1024);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(1024);
    mg_auto(buf) struct mg_buf identity = MG_BUF_INIT(1024);
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&id,
                                    .root = (struct mango_buf *)&root,
                                    .identity = (struct mango_buf *)&identity};
    char known[1100];
    id_of(label, known);
    mango_status s = strcmp(op, "attach") == 0 ? plugin->sandbox->attach(plugin->ctx, call, sv(known), &spec, &ref)
                     : fork_it                 ? plugin->sandbox->fork(plugin->ctx, call, sv(word(j, 2)), &spec, &ref)
                                               : plugin->sandbox->create(plugin->ctx, call, &spec, &ref);
    if (s == MANGO_OK)
        remember(label, mg_buf_view(&id));
    mg_jw_kstr(w, "id", mg_buf_view(&id));
    mg_jw_kstr(w, "root", mg_buf_view(&root));
    mg_jw_kstr(w, "identity", mg_buf_view(&identity));
    mg_jw_kbool(w, "found", ref.flags & MANGO_REF_FOUND);
    return s;
}

struct output {
    struct mg_buf out, err;
    uint64_t bytes;
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct output *o = ctx;
    o->bytes += n;
    return mg_buf_append(stream == 2 ? &o->err : &o->out, p, n) == MG_OK ? 0 : 1;
}

static mango_status run(const char *label, uint64_t limit_ms, uint64_t max, const char *script, const char *in,
                        const struct mango_call *call, struct output *o, struct mango_exec_result *r)
{
    char id[1100];
    struct mango_sv argv[] = {sv("/bin/sh"), sv("-c"), sv(script)};
    const struct mango_exec_req req = {.struct_size = sizeof(req),
                                       .argv = argv,
                                       .n_argv = 3,
                                       .stdin_data = sv(in),
                                       .sink = on_output,
                                       .sink_ctx = o,
                                       .max_output = max,
                                       .limit_ns = limit_ms ? mg_now_ns() + limit_ms * 1000000 : 0};
    id_of(label, id);
    *r = (struct mango_exec_result){.struct_size = sizeof(*r)};
    return plugin->sandbox->exec(plugin->ctx, call, sv(id), &req, r);
}

static mango_status exec_op(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    struct output o = {MG_BUF_INIT(OUTPUT_MAX), MG_BUF_INIT(OUTPUT_MAX), 0};
    struct mango_exec_result r;
    mango_status s = run(word(j, 2), number(j, 3), number(j, 4), word(j, 5), word(j, 6), call, &o, &r);
    mg_jw_kstr(w, "out", mg_buf_view(&o.out));
    mg_jw_kstr(w, "err", mg_buf_view(&o.err));
    mg_jw_kint(w, "out_len", (int64_t)o.out.len);
    mg_jw_kint(w, "stdout_bytes", (int64_t)r.stdout_bytes);
    mg_jw_kint(w, "code", r.exited ? r.exit_code : -1);
    mg_jw_kint(w, "signal", r.signal);
    mg_jw_kbool(w, "exited", r.exited);
    mg_jw_kbool(w, "timed_out", r.timed_out);
    mg_jw_kbool(w, "cancelled", r.cancelled);
    mg_jw_kbool(w, "oom", r.oom);
    mg_jw_kbool(w, "unknown", r.unknown);
    mg_buf_done(&o.out);
    mg_buf_done(&o.err);
    return s;
}

struct source {
    uint64_t left, at;
};

static int64_t on_source(void *ctx, char *p, uint64_t n)
{
    struct source *s = ctx;
    uint64_t take = n < s->left ? n : s->left;
    for (uint64_t i = 0; i < take; i++)
        p[i] = (char)((s->at + i) * 31 >> 3);
    s->at += take;
    s->left -= take;
    return (int64_t)take;
}

struct checked {
    struct mg_buf keep;
    uint64_t at, wrong;
    bool count_only;
};

static int32_t on_bytes(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    struct checked *c = ctx;
    for (uint64_t i = 0; i < n && c->count_only; i++)
        c->wrong += p[i] != (char)((c->at + i) * 31 >> 3);
    c->at += n;
    return c->count_only || mg_buf_append(&c->keep, p, n) == MG_OK ? 0 : 1;
}

static mango_status file_op(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    char id[1100];
    const char *op = j->words[1];
    id_of(word(j, 2), id);
    if (strcmp(op, "write") == 0 || strcmp(op, "stream") == 0) {
        struct source src = {.left = number(j, 4)};
        bool stream = strcmp(op, "stream") == 0;
        const struct mango_write_req req = {.struct_size = sizeof(req),
                                            .path = sv(word(j, 3)),
                                            .content = sv(stream ? "" : word(j, 4)),
                                            .source = stream ? on_source : NULL,
                                            .source_ctx = &src,
                                            .source_len = -1};
        return plugin->sandbox->write(plugin->ctx, call, sv(id), &req);
    }
    if (strcmp(op, "stat") == 0) {
        struct mango_stat st = {.struct_size = sizeof(st)};
        mango_status s = plugin->sandbox->stat(plugin->ctx, call, sv(id), sv(word(j, 3)), 0, &st);
        mg_jw_kint(w, "size", (int64_t)st.size);
        mg_jw_kint(w, "kind", st.kind);
        mg_jw_kint(w, "mode", st.mode);
        return s;
    }
    /* More than 1 MiB is only compared with what `stream` writes. */
    struct checked c = {.keep = MG_BUF_INIT(OUTPUT_MAX), .at = number(j, 4), .count_only = number(j, 5) > 1024 * 1024};
    const struct mango_read_req req = {.struct_size = sizeof(req),
                                       .path = sv(word(j, 3)),
                                       .offset = number(j, 4),
                                       .max = number(j, 5),
                                       .sink = on_bytes,
                                       .sink_ctx = &c};
    int32_t eof = 0;
    mango_status s = plugin->sandbox->read(plugin->ctx, call, sv(id), &req, &eof);
    mg_jw_kstr(w, "content", mg_buf_view(&c.keep));
    mg_jw_kint(w, "bytes", (int64_t)(c.at - number(j, 4)));
    mg_jw_kint(w, "wrong", (int64_t)c.wrong);
    mg_jw_kbool(w, "eof", eof);
    mg_buf_done(&c.keep);
    return s;
}

static int32_t on_owned(void *ctx, const struct mango_owned *item)
{
    mg_jw_str(ctx, mg_sv_n(item->label.ptr, item->label.len));
    return 0;
}

static int32_t to_file(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    return write(*(int *)ctx, p, n) == (ssize_t)n ? 0 : 1;
}

static int64_t from_file(void *ctx, char *p, uint64_t n)
{
    return read(*(int *)ctx, p, n);
}

static mango_status archive_op(const struct job *j, const struct mango_call *call)
{
    char id[1100];
    bool pack = strcmp(j->words[1], "pack") == 0;
    int fd = open(word(j, 4), pack ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
    id_of(word(j, 2), id);
    mango_status s = pack ? plugin->sandbox->archive_out(plugin->ctx, call, sv(id), sv(word(j, 3)), to_file, &fd)
                          : plugin->sandbox->archive_in(plugin->ctx, call, sv(id), sv(word(j, 3)), from_file, &fd);
    close(fd);
    return s;
}

static mango_status state_op(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    const struct mango_sandbox_ops *o = plugin->sandbox;
    const char *op = j->words[1];
    char id[1100];
    id_of(word(j, 2), id);
    if (strcmp(op, "destroy") == 0)
        return o->destroy(plugin->ctx, call, sv(id), sv(word(j, 2)));
    if (strcmp(op, "detach") == 0)
        return o->detach(plugin->ctx, call, sv(id));
    if (strcmp(op, "health") == 0)
        return o->health(plugin->ctx, call);
    if (strcmp(op, "pause") == 0)
        return o->pause(plugin->ctx, call, sv(id));
    if (strcmp(op, "resume") == 0)
        return o->resume(plugin->ctx, call, sv(id));
    if (strcmp(op, "unsnapshot") == 0)
        return o->snapshot_delete(plugin->ctx, call, sv(word(j, 2)));
    if (strcmp(op, "snapshot") == 0) {
        mg_auto(buf) struct mg_buf name = MG_BUF_INIT(1024);
        mango_status s = o->snapshot(plugin->ctx, call, sv(id), (struct mango_buf *)&name);
        mg_jw_kstr(w, "snapshot", mg_buf_view(&name));
        return s;
    }
    mg_jw_key(w, "labels");
    mg_jw_arr(w);
    mango_status s = o->list_owned(plugin->ctx, call, sv(word(j, 2)), on_owned, w);
    mg_jw_arr_end(w);
    return s;
}

/* ---- measuring ---- */

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static mango_status time_op(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    uint64_t n = number(j, 3);
    mg_autofree uint64_t *ns = mg_xcalloc(n + 1, sizeof(*ns));
    for (uint64_t i = 0; i < n; i++) {
        struct output o = {MG_BUF_INIT(OUTPUT_MAX), MG_BUF_INIT(OUTPUT_MAX), 0};
        struct mango_exec_result r;
        uint64_t start = mg_now_ns();
        mango_status s = run(word(j, 2), CALL_S * 1000, 0, word(j, 4), "", call, &o, &r);
        ns[i] = mg_now_ns() - start;
        mg_buf_done(&o.out);
        mg_buf_done(&o.err);
        if (s < 0 || !r.exited)
            return s < 0 ? s : MANGO_EINTERNAL;
    }
    qsort(ns, n, sizeof(*ns), by_time);
    mg_jw_kint(w, "p50_us", n ? (int64_t)(ns[n / 2] / 1000) : 0);
    mg_jw_kint(w, "p99_us", n ? (int64_t)(ns[n * 99 / 100] / 1000) : 0);
    return MANGO_OK;
}

static size_t waste(char *p, size_t size, size_t n, void *ctx)
{
    (void)p;
    (void)ctx;
    return size * n;
}

/* What a program without a pool of its own would do: one handle of libcurl, which keeps its connection. NULL: cannot. */
static CURL *pinger(const char *socket_path)
{
    CURL *c = curl_easy_init();
    if (c && (curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, socket_path) != CURLE_OK ||
              curl_easy_setopt(c, CURLOPT_URL, "http://docker/_ping") != CURLE_OK ||
              curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) != CURLE_OK ||
              curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, waste) != CURLE_OK)) {
        curl_easy_cleanup(c);
        c = NULL;
    }
    return c;
}

static mango_status pings_op(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    uint64_t n = number(j, 2);
    mg_autofree uint64_t *ns = mg_xcalloc(n + 1, sizeof(*ns));
    mg_autofree uint64_t *raw = mg_xcalloc(n + 1, sizeof(*raw));
    CURL *c = pinger(word(j, 3));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t start = mg_now_ns();
        mango_status s = plugin->sandbox->health(plugin->ctx, call);
        ns[i] = mg_now_ns() - start;
        start = mg_now_ns();
        if (s < 0 || !c || curl_easy_perform(c) != CURLE_OK) {
            curl_easy_cleanup(c);
            return s < 0 ? s : MANGO_EINTERNAL;
        }
        raw[i] = mg_now_ns() - start;
    }
    curl_easy_cleanup(c);
    qsort(ns, n, sizeof(*ns), by_time);
    qsort(raw, n, sizeof(*raw), by_time);
    mg_jw_kint(w, "p50_us", (int64_t)(ns[n / 2] / 1000));
    mg_jw_kint(w, "raw_p50_us", (int64_t)(raw[n / 2] / 1000));
    return MANGO_OK;
}

struct runner {
    const char *label, *script;
    uint64_t until, done;
    pthread_t thread;
    bool failed;
};

static void *keep_running(void *arg)
{
    struct runner *r = arg;
    struct mg_err err;
    while (mg_now_ns() < r->until && !r->failed) {
        struct mango_call call = mg_plugin_call(mg_now_ns() + CALL_S * UINT64_C(1000000000), NULL, &err);
        struct output o = {MG_BUF_INIT(OUTPUT_MAX), MG_BUF_INIT(OUTPUT_MAX), 0};
        struct mango_exec_result res;
        r->failed = run(r->label, CALL_S * 1000, 0, r->script, "", &call, &o, &res) < 0 || !res.exited;
        mg_buf_done(&o.out);
        mg_buf_done(&o.err);
        r->done++;
    }
    return NULL;
}

static mango_status many_op(const struct job *j, struct mg_jw *w)
{
    struct runner r[64] = {0};
    int n = 0;
    uint64_t start = mg_now_ns(), until = start + number(j, 3) * UINT64_C(1000000000), done = 0;
    bool failed = false;
    char *save = NULL;
    for (char *l = strtok_r(j->words[2], ",", &save); l && n < 64; l = strtok_r(NULL, ",", &save), n++) {
        r[n] = (struct runner){.label = l, .script = word(j, 4), .until = until};
        if (pthread_create(&r[n].thread, NULL, keep_running, &r[n]) != 0)
            abort();
    }
    for (int i = 0; i < n; i++) {
        pthread_join(r[i].thread, NULL);
        done += r[i].done;
        failed |= r[i].failed;
    }
    mg_jw_kint(w, "per_1000_s", (int64_t)(done * UINT64_C(1000000000000) / (mg_now_ns() - start)));
    return failed ? MANGO_EINTERNAL : MANGO_OK;
}

/* ---- requests ---- */

static const struct {
    const char *name;
    int words;
} operations[] = {
    {"create", 4}, {"attach", 4},   {"mount", 6}, {"fork", 5},       {"exec", 6},   {"read", 6},
    {"write", 5},  {"stream", 5},   {"stat", 4},  {"destroy", 3},    {"detach", 3}, {"health", 2},
    {"pause", 3},  {"resume", 3},   {"list", 3},  {"unsnapshot", 3}, {"pack", 5},   {"unpack", 5},
    {"time", 5},   {"snapshot", 3}, {"many", 5},  {"pings", 4},
};

static mango_status dispatch(const struct job *j, const struct mango_call *call, struct mg_jw *w)
{
    const char *op = j->words[1];
    size_t i = 0, n = sizeof(operations) / sizeof(operations[0]);
    while (i < n && strcmp(operations[i].name, op) != 0)
        i++;
    if (i == n || j->n_words < operations[i].words)
        return MANGO_EINVALID;
    if (i < 4)
        return open_box(j, call, w);
    if (strcmp(op, "exec") == 0)
        return exec_op(j, call, w);
    if (strcmp(op, "time") == 0)
        return time_op(j, call, w);
    if (strcmp(op, "pings") == 0)
        return pings_op(j, call, w);
    if (strcmp(op, "many") == 0)
        return many_op(j, w);
    if (strcmp(op, "read") == 0 || strcmp(op, "write") == 0 || strcmp(op, "stream") == 0 || strcmp(op, "stat") == 0)
        return file_op(j, call, w);
    if (strcmp(op, "pack") == 0 || strcmp(op, "unpack") == 0)
        return archive_op(j, call);
    return state_op(j, call, w);
}

static void *serve(void *arg)
{
    struct job *j = arg;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(2 * OUTPUT_MAX);
    struct mg_jw w = mg_jw_to(&out);
    struct mango_call call = mg_plugin_call(mg_now_ns() + CALL_S * UINT64_C(1000000000), j->cancel, &err);
    mg_jw_obj(&w);
    mg_jw_kint(&w, "n", j->n);
    uint64_t start = mg_now_ns();
    mango_status s = dispatch(j, &call, &w);
    mg_jw_kint(&w, "ms", (int64_t)((mg_now_ns() - start) / 1000000));
    mg_jw_kint(&w, "status", s);
    mg_jw_kstrz(&w, "error", err.text);
    mg_jw_obj_end(&w);
    pthread_mutex_lock(&lock);
    printf("%.*s\n", (int)out.len, out.ptr);
    (void)fflush(stdout);
    cancels[j->n % CALLS_MAX] = NULL;
    pthread_mutex_unlock(&lock);
    mg_cancel_unref(j->cancel);
    free(j->line);
    free(j);
    return NULL;
}

static void take(char *line)
{
    struct job *j = mg_xcalloc(1, sizeof(*j));
    char *save = NULL;
    j->line = mg_xstrdup(line);
    for (char *w = strtok_r(j->line, " \n", &save); w && j->n_words < WORDS_MAX; w = strtok_r(NULL, " \n", &save)) {
        decode(w);
        j->words[j->n_words++] = w;
    }
    if (j->n_words < 2) {
        free(j->line);
        free(j);
        return;
    }
    if (strcmp(j->words[0], "cancel") == 0) {
        pthread_mutex_lock(&lock);
        struct mg_cancel *c = cancels[number(j, 1) % CALLS_MAX];
        if (c)
            mg_cancel_fire(c);
        pthread_mutex_unlock(&lock);
        free(j->line);
        free(j);
        return;
    }
    pthread_t t;
    j->n = strtol(j->words[0], NULL, 10);
    j->cancel = mg_cancel_new();
    pthread_mutex_lock(&lock);
    cancels[j->n % CALLS_MAX] = j->cancel;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&t, NULL, serve, j) != 0)
        abort();
    (void)pthread_detach(t);
}

int main(int argc, char **argv)
{
    struct mg_err err = {0};
    const struct mg_plugin_net_opts net = {0};
    struct mg_plugin_services services = {0};
    if (argc != 3) {
        fputs("usage: drive-sandbox PLUGIN_DIR NAME\n", stderr);
        return 64;
    }
    const struct mg_plugin_load l = {.dir = argv[1],
                                     .name = argv[2],
                                     .variable = "drive-sandbox",
                                     .kind = MANGO_KIND_SANDBOX,
                                     .services = &services};
    if (mg_plugin_net_open(&net, &services.net, &err) < 0 || start_egress(&services, &err) < 0 ||
        mg_plugin_open(&l, &plugin, &err) < 0) {
        fprintf(stderr, "drive-sandbox: %s\n", err.text);
        return 1;
    }
    printf("ready\n");
    (void)fflush(stdout);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0)
        take(line);
    free(line);
    _exit(0); /* as a server that dies: what still runs in sandboxes ends by itself */
}
