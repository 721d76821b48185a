/* doctor --model: the endpoint is asked what turns will ask of it: a stream, a tool call and its result, usage, the prompt cache, errors that can be told
 * apart. A few small requests, which the endpoint may charge for. */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/cli-client.h"
#include "cmd/cli-doctor.h"
#include "json/write.h"
#include "model/model.h"
#include "model/window.h"

enum {
    BODY_MAX = 1024 * 1024,
    ANSWER_MS = 60000,   /* for each answer */
    CACHED_LINES = 1200, /* of a prompt long enough to be cached: some 14,000 tokens, above every endpoint's minimum */
};

/* One call, waited for. Lock guards all members. */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    uint64_t start_ns, first_ns, end_ns;
    int deltas;
    struct mg_model_result *result;
};

static void on_delta(void *ctx, int block, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct call *c = ctx;
    (void)block, (void)kind;
    pthread_mutex_lock(&c->lock);
    if (c->first_ns == 0)
        c->first_ns = mg_now_ns();
    c->deltas += !start && text.len > 0;
    pthread_mutex_unlock(&c->lock);
}

static void on_done(void *ctx, struct mg_model_result *r)
{
    struct call *c = ctx;
    pthread_mutex_lock(&c->lock);
    c->result = r;
    c->end_ns = mg_now_ns();
    pthread_cond_signal(&c->done_cond);
    pthread_mutex_unlock(&c->lock);
}

/* The answer to body; call_done frees it. */
static void ask(struct mg_model *m, struct mg_sv body, struct call *c)
{
    *c = (struct call){
        .lock = PTHREAD_MUTEX_INITIALIZER, .done_cond = PTHREAD_COND_INITIALIZER, .start_ns = mg_now_ns()};
    (void)mg_model_start(
        m, &(struct mg_model_call_opts){.body = body, .on_delta = on_delta, .on_done = on_done, .ctx = c});
    pthread_mutex_lock(&c->lock);
    while (!c->result)
        pthread_cond_wait(&c->done_cond, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void call_done(struct call *c)
{
    mg_model_result_free(c->result);
    pthread_cond_destroy(&c->done_cond);
    pthread_mutex_destroy(&c->lock);
}

/* ---- requests ---- */

struct probe {
    struct mg_doctor *d;
    struct mg_model *m;
    struct mg_sv model;
};

static struct mg_model *open_model(struct mg_doctor *d, const char *key, struct mg_err *err)
{
    const struct mg_model_opts o = {
        .base_url = mg_conf_strn(d->conf, MG_OPT_MODEL_BASE_URL),
        .api_key = key,
        .bearer = strcmp(mg_conf_str(d->conf, MG_OPT_MODEL_AUTH), "bearer") == 0,
        .ca_file = mg_conf_strn(d->conf, MG_OPT_MODEL_CA_FILE),
        .proxy = mg_conf_strn(d->conf, MG_OPT_MODEL_PROXY),
        .idle_ms = ANSWER_MS,
        .total_ms = ANSWER_MS,
    };
    struct mg_model *m = NULL;
    return mg_model_open(&o, &m, err) < 0 ? NULL : m;
}

/* A request whose messages, and whatever else stands beside them, are raw text. */
static struct mg_sv request(const struct probe *p, int max_tokens, const char *rest)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(BODY_MAX);
    (void)mg_buf_str(&b, "{\"model\":\"");
    mg_json_escape(&b, p->model);
    (void)mg_buf_printf(&b, "\",\"max_tokens\":%d,\"stream\":true,%s}", max_tokens, rest);
    return mg_arena_sv(p->d->cli->arena, mg_buf_view(&b));
}

static void say_failed(struct mg_doctor *d, const char *check, const struct mg_model_result *r)
{
    mg_doctor_say(d, MG_FINDING_BAD, check, "without this no turn works: mend the endpoint, or choose another one",
                  "%s", r->message);
}

/* ---- the checks ---- */

static void check_stream(struct probe *p)
{
    struct call c;
    ask(p->m,
        request(p, 200,
                "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Count from one to twenty "
                "in words.\"}]}]"),
        &c);
    const struct mg_model_usage *u = &c.result->usage;
    if (c.result->fail != MG_MODEL_OK) {
        say_failed(p->d, "stream", c.result);
        call_done(&c);
        return;
    }
    if (c.deltas > 1)
        mg_doctor_say(p->d, MG_FINDING_OK, "stream", NULL,
                      "the first of %d pieces after %llu ms, the end after %llu ms, %s", c.deltas,
                      (unsigned long long)(c.first_ns - c.start_ns) / 1000000,
                      (unsigned long long)(c.end_ns - c.start_ns) / 1000000, c.result->stop_reason);
    else
        mg_doctor_say(p->d, MG_FINDING_WARN, "stream",
                      "look for a proxy that buffers, or an endpoint that cannot stream",
                      "the answer came in one piece: clients will see no text while it is written");
    if (u->input_tokens + u->cache_read_input_tokens + u->cache_creation_input_tokens > 0 && u->output_tokens > 0)
        mg_doctor_say(p->d, MG_FINDING_OK, "usage", NULL, "%lld tokens in, %lld out", (long long)u->input_tokens,
                      (long long)u->output_tokens);
    else
        mg_doctor_say(p->d, MG_FINDING_WARN, "usage", "compaction will go by estimates, and usage will show nothing",
                      "the endpoint does not count tokens");
    call_done(&c);
}

#define TOOL                                                                                                          \
    "\"tools\":[{\"name\":\"lookup\",\"description\":\"Look up a code word.\",\"input_schema\":{\"type\":\"object\"," \
    "\"properties\":{\"key\":{\"type\":\"string\"}},\"required\":[\"key\"]}}]"
#define QUESTION                                                                                                    \
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Use the tool lookup with the key harbour, then " \
    "tell me the code word.\"}]}"

static const struct mg_model_block *first_call(const struct mg_model_result *r)
{
    for (int i = 0; i < r->n_blocks; i++)
        if (r->blocks[i].kind == MG_BLOCK_TOOL_USE)
            return &r->blocks[i];
    return NULL;
}

/* The answer with its call goes back as it came, with the result behind it. */
static struct mg_sv with_result(const struct probe *p, const struct mg_model_result *r,
                                const struct mg_model_block *call)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(BODY_MAX);
    (void)mg_buf_str(&b, TOOL ",\"messages\":[" QUESTION ",{\"role\":\"assistant\",\"content\":[");
    for (int i = 0; i < r->n_blocks; i++)
        (void)mg_buf_printf(&b, "%s%.*s", i ? "," : "", MG_SV_ARG(r->blocks[i].raw));
    (void)mg_buf_str(&b, "]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"");
    mg_json_escape(&b, call->tool_id);
    (void)mg_buf_str(&b, "\",\"content\":[{\"type\":\"text\",\"text\":\"the code word is tin\"}]}]}]");
    return request(p, 1000, mg_arena_strdup(p->d->cli->arena, mg_buf_view(&b)));
}

static void check_tools(struct probe *p)
{
    struct call first, second;
    ask(p->m, request(p, 1000, TOOL ",\"messages\":[" QUESTION "]"), &first);
    const struct mg_model_block *call = first_call(first.result);
    if (first.result->fail != MG_MODEL_OK) {
        say_failed(p->d, "tools", first.result);
    } else if (!call || call->tool_input.len == 0) {
        mg_doctor_say(p->d, MG_FINDING_BAD, "tools", "choose a model that calls tools",
                      "asked to use a tool, the model did not (%s)", first.result->stop_reason);
    } else {
        ask(p->m, with_result(p, first.result, call), &second);
        if (second.result->fail != MG_MODEL_OK)
            say_failed(p->d, "tools", second.result);
        else
            mg_doctor_say(p->d, MG_FINDING_OK, "tools", NULL, "%.*s %.*s was called, and its result taken",
                          MG_SV_ARG(call->tool_name), MG_SV_ARG(call->tool_input));
        call_done(&second);
    }
    call_done(&first);
}

static void check_cache(struct probe *p)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(BODY_MAX);
    struct call first, second;
    (void)mg_buf_printf(&b, "\"system\":[{\"type\":\"text\",\"text\":\"Run %llu. ", (unsigned long long)mg_now_ns());
    for (int i = 0; i < CACHED_LINES; i++)
        (void)mg_buf_printf(&b, "Line %d of a list of numbers. ", i);
    (void)mg_buf_str(&b, "\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":"
                         "[{\"type\":\"text\",\"text\":\"Say yes.\"}]}]");
    struct mg_sv body = request(p, 20, b.ptr);
    ask(p->m, body, &first);
    ask(p->m, body, &second);
    if (second.result->fail != MG_MODEL_OK)
        mg_doctor_say(p->d, MG_FINDING_BAD, "cache",
                      "turns mark their prompts so: choose an endpoint that takes cache_control", "%s",
                      second.result->message);
    else if (second.result->usage.cache_read_input_tokens > 0)
        mg_doctor_say(p->d, MG_FINDING_OK, "cache", NULL, "%lld tokens of a repeated prompt were read from the cache",
                      (long long)second.result->usage.cache_read_input_tokens);
    else
        mg_doctor_say(p->d, MG_FINDING_WARN, "cache",
                      "each turn of a long session will cost as much as all before it together",
                      "a repeated prompt was not read from a cache");
    call_done(&second);
    call_done(&first);
}

static void check_errors(struct probe *p)
{
    struct mg_err err = {0};
    struct call c;
    ask(p->m, request(p, 20, "\"messages\":[]"), &c);
    if (c.result->fail == MG_MODEL_PERMANENT && strstr(c.result->message, " 400"))
        mg_doctor_say(p->d, MG_FINDING_OK, "errors", NULL, "a wrong request is refused: %.200s", c.result->message);
    else
        mg_doctor_say(p->d, MG_FINDING_WARN, "errors", "failures may be retried for nothing, or given up too early",
                      "a request without messages is not refused with 400: %s",
                      c.result->fail == MG_MODEL_OK ? "it was answered" : c.result->message);
    call_done(&c);
    struct mg_model *stranger = open_model(p->d, "mango-doctor-not-a-key", &err);
    if (!stranger)
        return;
    ask(stranger, request(p, 20, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"), &c);
    if (c.result->fail == MG_MODEL_OK)
        mg_doctor_say(p->d, MG_FINDING_WARN, "key", "fine for an endpoint of your own on a closed network",
                      "the endpoint answers to any key");
    else
        mg_doctor_say(p->d, MG_FINDING_OK, "key", NULL, "a wrong key is refused: %.200s", c.result->message);
    call_done(&c);
    mg_model_close(stranger);
}

static void check_web(struct probe *p)
{
    struct call c;
    if (strcmp(mg_conf_str(p->d->conf, MG_OPT_MODEL_WEB_TOOLS), "on") != 0)
        return;
    ask(p->m,
        request(
            p, 20,
            "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}],\"messages\":[{\"role\":\"user\","
            "\"content\":[{\"type\":\"text\",\"text\":\"Say yes.\"}]}]"),
        &c);
    if (c.result->fail != MG_MODEL_OK)
        mg_doctor_say(p->d, MG_FINDING_BAD, "web", "set MANGO_MODEL_WEB_TOOLS to auto or off",
                      "the endpoint does not take web_search: %s", c.result->message);
    else
        mg_doctor_say(p->d, MG_FINDING_OK, "web", NULL, "web_search can be declared");
    call_done(&c);
}

/* MANGO_MODEL_ID, else the first that the endpoint lists. */
static struct mg_sv choose_model(struct mg_doctor *d)
{
    const char *id = mg_conf_strn(d->conf, MG_OPT_MODEL_ID);
    struct mg_json *root = NULL;
    if (id)
        return mg_sv_of(id);
    if (!d->models || mg_json_parse(d->cli->arena, mg_sv_of(d->models), &mg_json_raw_limits, &root, NULL) < 0)
        return MG_SV("");
    return mg_json_get_str(d->cli->arena, mg_json_at(mg_json_get(root, "data"), 0), "id");
}

void mg_doctor_model_deep(struct mg_doctor *d)
{
    static void (*const CHECKS[])(struct probe *) = {check_stream, check_tools, check_cache, check_errors, check_web};
    struct mg_err err = {0};
    struct probe p = {.d = d};
    if (!mg_cli_has(d->cli, "model") || !mg_conf_strn(d->conf, MG_OPT_MODEL_BASE_URL))
        return;
    p.model = choose_model(d);
    if (p.model.len == 0) {
        mg_doctor_say(d, MG_FINDING_BAD, "stream", "set MANGO_MODEL_ID",
                      "the endpoint lists no model, and none is set");
        return;
    }
    p.m = open_model(d, mg_conf_strn(d->conf, MG_OPT_MODEL_API_KEY), &err);
    if (!p.m) {
        mg_doctor_say(d, MG_FINDING_BAD, "stream", "see the line on the model above", "%s", err.text);
        return;
    }
    int64_t window = mg_conf_int(d->conf, MG_OPT_MODEL_WINDOW);
    mg_doctor_say(d, MG_FINDING_OK, "window", NULL, "%.*s is taken to have a window of %lld tokens%s",
                  MG_SV_ARG(p.model), (long long)(window ? window : mg_model_window(p.model)),
                  window ? " (MANGO_MODEL_WINDOW)" : "; set MANGO_MODEL_WINDOW if it has another");
    for (size_t i = 0; i < sizeof(CHECKS) / sizeof(CHECKS[0]); i++)
        CHECKS[i](&p);
    mg_model_close(p.m);
}
