#include "support/endpoint-window.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/map.h"

enum {
    BYTES_PER_TOKEN = 4,
    BREAKPOINTS_MAX = 4,   /* as the real endpoint */
    LOOK_BACK_BLOCKS = 20, /* before a breakpoint: the same */
    FACTS_MAX = 64,
};

struct place {
    size_t end;    /* of a block, in the text without cache marks */
    long blocks;   /* blocks before and with it */
    uint64_t hash; /* of the text up to there */
};

struct endpoint_window {
    long tokens;
    struct mg_map *kept; /* hash of a prefix, as text */
    struct endpoint_counts counts;
};

/* The request as the cache sees it. */
struct walk {
    struct mg_arena *a;
    uint64_t hash;
    size_t len;
    struct place *blocks;
    int n, cap;
    int breakpoints[BREAKPOINTS_MAX + 1];
    int n_breakpoints;
};

struct endpoint_window *endpoint_window_new(long tokens)
{
    struct endpoint_window *w = mg_xcalloc(1, sizeof(*w));
    w->tokens = tokens;
    w->kept = mg_map_new();
    return w;
}

void endpoint_window_free(struct endpoint_window *w)
{
    if (!w)
        return;
    mg_map_free(w->kept);
    free(w);
}

static void eat(struct walk *k, struct mg_sv text)
{
    for (size_t i = 0; i < text.len; i++)
        k->hash = (k->hash ^ (unsigned char)text.ptr[i]) * 0x100000001b3u;
    k->len += text.len;
}

/* One block, without its mark. */
static void block(struct walk *k, const struct mg_json *b)
{
    const struct mg_json *mark = mg_json_get(b, "cache_control");
    for (const struct mg_json *m = b->child; m; m = m->next) {
        if (m == mark)
            continue;
        eat(k, m->key);
        eat(k, m->raw);
    }
    if (b->type == MG_JSON_STRING)
        eat(k, b->raw);
    if (k->n == k->cap) {
        int cap = k->cap ? 2 * k->cap : 64;
        struct place *more = mg_arena_alloc(k->a, sizeof(*more) * (size_t)cap);
        if (k->n)
            memcpy(more, k->blocks, sizeof(*more) * (size_t)k->n);
        k->blocks = more;
        k->cap = cap;
    }
    k->blocks[k->n] = (struct place){.end = k->len, .blocks = k->n + 1, .hash = k->hash};
    if (mark && k->n_breakpoints <= BREAKPOINTS_MAX)
        k->breakpoints[k->n_breakpoints++] = k->n;
    k->n++;
}

static void blocks(struct walk *k, const struct mg_json *list)
{
    if (!list)
        return;
    if (list->type == MG_JSON_STRING) {
        block(k, list);
        return;
    }
    for (const struct mg_json *b = list->child; b; b = b->next)
        block(k, b);
}

static char *key_of(struct mg_arena *a, uint64_t hash)
{
    return mg_arena_strdup(a, mg_arena_printf(a, "%016llx", (unsigned long long)hash));
}

/* The longest prefix that was kept and stands at most so many blocks before a breakpoint. */
static size_t find_kept(struct endpoint_window *w, struct walk *k)
{
    size_t best = 0;
    for (int i = 0; i < k->n_breakpoints; i++) {
        int at = k->breakpoints[i];
        for (int b = at; b >= 0 && b > at - LOOK_BACK_BLOCKS; b--) {
            if (k->blocks[b].end > best && mg_map_get(w->kept, mg_sv_of(key_of(k->a, k->blocks[b].hash))))
                best = k->blocks[b].end;
        }
    }
    return best;
}

static void keep(struct endpoint_window *w, struct walk *k)
{
    for (int i = 0; i < k->n_breakpoints; i++)
        (void)mg_map_put(w->kept, mg_sv_of(key_of(k->a, k->blocks[k->breakpoints[i]].hash)), w);
}

const char *endpoint_window_take(struct endpoint_window *w, struct mg_arena *a, const struct mg_json *root,
                                 struct mg_sv *ret_usage)
{
    struct walk k = {.a = a, .hash = 0xcbf29ce484222325u};
    int64_t room = 0;
    blocks(&k, mg_json_get(root, "tools"));
    blocks(&k, mg_json_get(root, "system"));
    const struct mg_json *messages = mg_json_get(root, "messages");
    for (const struct mg_json *m = messages ? messages->child : NULL; m; m = m->next) {
        eat(&k, mg_json_get_raw(m, "role"));
        blocks(&k, mg_json_get(m, "content"));
    }
    (void)mg_json_i64(mg_json_get(root, "max_tokens"), &room);
    long tokens = (long)(k.len / BYTES_PER_TOKEN), whole = tokens + (long)room;
    w->counts.requests++;
    if (k.n_breakpoints > BREAKPOINTS_MAX)
        return "A maximum of 4 blocks with cache_control may be provided.";
    if (whole > w->counts.largest)
        w->counts.largest = whole;
    if (whole > w->tokens) {
        w->counts.too_long++;
        return mg_arena_strdup(a, mg_arena_printf(a, "prompt is too long: %ld tokens > %ld maximum", whole, w->tokens));
    }
    long read = (long)(find_kept(w, &k) / BYTES_PER_TOKEN);
    long upto = k.n_breakpoints ? (long)(k.blocks[k.breakpoints[k.n_breakpoints - 1]].end / BYTES_PER_TOKEN) : read;
    keep(w, &k);
    w->counts.cache_read += read;
    w->counts.cache_made += upto - read;
    w->counts.input += tokens - upto;
    *ret_usage = mg_arena_printf(a, "usage %ld 20 %ld %ld\n", tokens - upto, read, upto - read);
    return NULL;
}

struct endpoint_counts endpoint_window_counts(const struct endpoint_window *w)
{
    return w->counts;
}

/* ---- what a request tells ---- */

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '=';
}

/* The next "name=value" behind "FACT " from *body on; empty at the end. */
static struct mg_sv next_fact(struct mg_sv *body)
{
    const char *at = body->len ? memmem(body->ptr, body->len, "FACT ", 5) : NULL;
    if (!at)
        return MG_SV("");
    *body = mg_sv_from(*body, (size_t)(at - body->ptr) + 5);
    size_t n = 0;
    while (n < body->len && in_word(body->ptr[n]))
        n++;
    return mg_sv_n(body->ptr, n);
}

struct mg_sv endpoint_recall(struct mg_arena *a, struct mg_sv body, struct mg_sv name)
{
    while (body.len && memmem(body.ptr, body.len, "FACT ", 5)) {
        struct mg_sv f = next_fact(&body);
        size_t eq = mg_sv_find(f, '=');
        if (eq < f.len && mg_sv_eq(mg_sv_n(f.ptr, eq), name))
            return f;
    }
    return mg_arena_printf(a, "%.*s=unknown", MG_SV_ARG(name));
}

struct mg_sv endpoint_facts(struct mg_arena *a, struct mg_sv body)
{
    struct mg_sv seen[FACTS_MAX];
    int n = 0;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    while (body.len && memmem(body.ptr, body.len, "FACT ", 5)) {
        struct mg_sv f = next_fact(&body);
        bool known = mg_sv_find(f, '=') == f.len || n == FACTS_MAX;
        for (int i = 0; i < n && !known; i++)
            known = mg_sv_eq(seen[i], f);
        if (known)
            continue;
        seen[n++] = f;
        mg_buf_printf(&b, "%sFACT %.*s", b.len ? ", " : "", MG_SV_ARG(f));
    }
    return mg_arena_sv(a, b.len ? mg_buf_view(&b) : MG_SV("nothing of note"));
}
