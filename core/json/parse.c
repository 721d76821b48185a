/* The JSON parser: one loop with a stack of open containers of its own, so that depth costs no C stack. */
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/siphash.h"
#include "base/utf8.h"
#include "json/json.h"
#include "json/scan.h"

enum {
    FRAMES_FIRST = 16,    /* levels; API bodies rarely have more */
    PAIRWISE_MAX = 8,     /* members; above it, duplicates are found by a hash table */
    PATH_MAX_BYTES = 300, /* of a place in an error text */
    PATH_KEY_MAX = 48,    /* bytes of one key in it */
};

const struct mg_json_limits mg_json_api_limits = {.max_depth = 64, .max_nodes = 200000, .strict = true};
const struct mg_json_limits mg_json_raw_limits = {.max_depth = 512, .max_nodes = 2000000, .strict = false};

/* An open array or object. */
struct frame {
    struct mg_json *node;  /* NULL when only checking */
    struct mg_json **tail; /* where its next child is linked */
    struct mg_sv key;      /* of the member being read */
    uint32_t n;            /* children begun */
    bool object;
};

struct parser {
    struct mg_sv text;
    size_t at;
    struct mg_arena *arena; /* NULL: check only, no nodes */
    struct mg_json_limits lim;
    struct mg_err *err;
    struct frame *frames;
    uint32_t depth, cap;
    uint32_t nodes;
    bool in_value; /* the place of an error is the value, not its container */
    struct mg_json *root;
};

/* --- errors --- */

struct path {
    char text[PATH_MAX_BYTES];
    size_t len;
    bool full;
};

static void path_put(struct path *p, const char *bytes, size_t n)
{
    static const char more[] = "...";

    if (p->full)
        return;
    if (p->len + n + sizeof(more) > sizeof(p->text)) {
        p->full = true;
        bytes = more;
        n = sizeof(more) - 1;
    }
    memcpy(p->text + p->len, bytes, n);
    p->len += n;
    p->text[p->len] = '\0';
}

static bool plain_name(struct mg_sv key)
{
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return false;
    }

    return key.len > 0;
}

static void path_put_key(struct path *p, struct mg_sv key)
{
    char shown[PATH_KEY_MAX + 8];
    size_t n = mg_utf8_floor(key, PATH_KEY_MAX);
    bool cut = n < key.len;

    if (plain_name(key) && !cut) {
        if (p->len)
            path_put(p, ".", 1);
        path_put(p, key.ptr, key.len);
        return;
    }
    int len = snprintf(shown, sizeof(shown), "[\"%.*s%s\"]", (int)n, key.ptr, cut ? "..." : "");
    for (int i = 0; i < len; i++)
        if ((unsigned char)shown[i] < 0x20)
            shown[i] = '?';
    path_put(p, shown, (size_t)len);
}

static void path_of(const struct parser *p, struct path *out)
{
    uint32_t shown = p->in_value ? p->depth : p->depth - (p->depth > 0);

    for (uint32_t i = 0; i < shown; i++) {
        const struct frame *f = &p->frames[i];
        char index[16];
        if (f->object) {
            path_put_key(out, f->key);
            continue;
        }
        /* A container that is open below has been counted; a value that failed at once has not. */
        int len = snprintf(index, sizeof(index), "[%u]", i + 1 < p->depth ? f->n - 1 : f->n);
        path_put(out, index, (size_t)len);
    }
}

__attribute__((format(printf, 3, 4))) static mg_rc fail(struct parser *p, size_t at, const char *fmt, ...)
{
    char what[256];
    struct path path = {.len = 0};
    va_list ap;

    if (!p->err)
        return MG_EINVAL;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    path_of(p, &path);
    return mg_err_set(p->err, MG_EINVAL, "%s%s%s at byte %zu", path.text, path.len ? ": " : "", what, at);
}

static mg_rc fail_unexpected(struct parser *p, const char *wanted)
{
    if (p->at >= p->text.len)
        return fail(p, p->at, "invalid JSON: the text ends where %s was expected", wanted);
    unsigned char c = (unsigned char)p->text.ptr[p->at];
    if (c > ' ' && c < 0x7f)
        return fail(p, p->at, "invalid JSON: '%c' where %s was expected", c, wanted);

    return fail(p, p->at, "invalid JSON: byte 0x%02x where %s was expected", c, wanted);
}

/* --- duplicate members --- */

static const struct mg_json *duplicate_pairwise(const struct mg_json *obj)
{
    for (const struct mg_json *x = obj->child; x; x = x->next)
        for (const struct mg_json *before = obj->child; before != x; before = before->next)
            if (mg_sv_eq(before->key, x->key))
                return x;

    return NULL;
}

static const struct mg_json *duplicate_hashed(const struct mg_json *obj)
{
    size_t n_slots = 4 * PAIRWISE_MAX;

    while (n_slots < 2 * (size_t)obj->n)
        n_slots *= 2;
    mg_autofree const struct mg_json **slots = mg_xcalloc(n_slots, sizeof(const struct mg_json *));
    for (const struct mg_json *x = obj->child; x; x = x->next) {
        size_t i = mg_siphash(x->key) & (n_slots - 1);
        for (; slots[i]; i = (i + 1) & (n_slots - 1))
            if (mg_sv_eq(slots[i]->key, x->key))
                return x;
        slots[i] = x;
    }

    return NULL;
}

/* Back from the value over the colon to the key's opening quote: a quote inside of a key has a backslash before it. */
static size_t key_offset(const struct parser *p, const struct mg_json *member)
{
    const char *c = member->raw.ptr - 1;

    while (*c != '"')
        c--;
    do
        c--;
    while (*c != '"' || c[-1] == '\\');

    return (size_t)(c - p->text.ptr);
}

static mg_rc check_duplicates(struct parser *p, const struct mg_json *obj)
{
    const struct mg_json *twice = obj->n <= PAIRWISE_MAX ? duplicate_pairwise(obj) : duplicate_hashed(obj);

    if (!twice)
        return MG_OK;
    p->frames[p->depth - 1].key = twice->key;
    p->in_value = true;
    return fail(p, key_offset(p, twice), "this member is given twice; the second one is");
}

/* --- the machine --- */

static void skip_space(struct parser *p)
{
    const char *c = p->text.ptr + p->at, *end = p->text.ptr + p->text.len;

    while (c < end && (*c == ' ' || *c == '\n' || *c == '\r' || *c == '\t'))
        c++;
    p->at = (size_t)(c - p->text.ptr);
}

/* Counts a value and links its node to the container it stands in. *ret stays NULL when only checking. */
static mg_rc begin_value(struct parser *p, enum mg_json_type type, struct mg_json **ret)
{
    struct frame *f = p->depth ? &p->frames[p->depth - 1] : NULL;

    *ret = NULL;
    if (p->arena) {
        if (++p->nodes > p->lim.max_nodes)
            return fail(p, p->at, "more than %u values", p->lim.max_nodes);
        struct mg_json *v = mg_arena_new_of(p->arena, struct mg_json);
        v->type = (uint8_t)type;
        v->raw = mg_sv_n(p->text.ptr + p->at, 0);
        if (f) {
            v->key = f->object ? f->key : mg_sv_n(NULL, 0);
            *f->tail = v;
            f->tail = &v->next;
            f->node->n++;
        } else {
            p->root = v;
        }
        *ret = v;
    }
    if (f)
        f->n++;
    return MG_OK;
}

static mg_rc add_scalar(struct parser *p, enum mg_json_type type, size_t end, struct mg_json **ret)
{
    mg_rc rc = begin_value(p, type, ret);

    if (rc < 0)
        return rc;
    if (*ret)
        (*ret)->raw.len = end - p->at;
    p->at = end;
    return MG_OK;
}

static mg_rc open_container(struct parser *p, enum mg_json_type type)
{
    struct mg_json *node;

    if (p->depth >= p->lim.max_depth)
        return fail(p, p->at, "nested deeper than %u levels", p->lim.max_depth);
    mg_rc rc = begin_value(p, type, &node);
    if (rc < 0)
        return rc;
    if (p->depth == p->cap) {
        p->cap = p->cap ? p->cap * 2 : FRAMES_FIRST;
        p->frames = mg_xrealloc(p->frames, p->cap * sizeof(*p->frames));
    }
    p->frames[p->depth++] = (struct frame){
        .node = node,
        .tail = node ? &node->child : NULL,
        .object = type == MG_JSON_OBJECT,
    };
    p->at++;
    return MG_OK;
}

static mg_rc close_container(struct parser *p)
{
    struct frame *f = &p->frames[p->depth - 1];

    p->at++;
    if (f->node) {
        f->node->raw.len = (size_t)(p->text.ptr + p->at - f->node->raw.ptr);
        if (f->object && p->lim.strict) {
            mg_rc rc = check_duplicates(p, f->node);
            if (rc < 0)
                return rc;
        }
    }
    p->depth--;
    return MG_OK;
}

/* The name of a member and the colon. */
static mg_rc read_key(struct parser *p)
{
    struct frame *f = &p->frames[p->depth - 1];

    p->in_value = false;
    skip_space(p);
    if (p->at >= p->text.len || p->text.ptr[p->at] != '"')
        return fail_unexpected(p, "a member name in double quotes");
    struct mg_json_token t = mg_json_scan_string(p->text, p->at, p->lim.strict);
    if (t.what)
        return fail(p, t.end, "invalid JSON: %s", t.what);
    f->key = mg_sv_n(p->text.ptr + p->at + 1, t.end - p->at - 2);
    if (p->arena)
        f->key = mg_json_decode(p->arena, f->key, t.escaped);
    p->at = t.end;
    skip_space(p);
    if (p->at >= p->text.len || p->text.ptr[p->at] != ':')
        return fail_unexpected(p, "a colon");
    p->at++;
    return MG_OK;
}

static mg_rc read_string(struct parser *p)
{
    struct mg_json_token t = mg_json_scan_string(p->text, p->at, p->lim.strict);
    struct mg_json *v;

    if (t.what)
        return fail(p, t.end, "invalid JSON: %s", t.what);
    mg_rc rc = add_scalar(p, MG_JSON_STRING, t.end, &v);
    if (v)
        v->escaped = t.escaped;
    return rc;
}

static mg_rc read_number(struct parser *p)
{
    struct mg_json_token t = mg_json_scan_number(p->text, p->at, p->lim.strict);
    struct mg_json *v;

    return t.what ? fail(p, t.end, "invalid JSON: %s", t.what) : add_scalar(p, MG_JSON_NUMBER, t.end, &v);
}

static mg_rc read_word(struct parser *p)
{
    static const struct {
        struct mg_sv text;
        enum mg_json_type type;
        bool boolean;
    } words[] = {
        {MG_SV("null"), MG_JSON_NULL, false},
        {MG_SV("true"), MG_JSON_BOOL, true},
        {MG_SV("false"), MG_JSON_BOOL, false},
    };
    struct mg_json *v;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t len = words[i].text.len;
        if (p->text.len - p->at < len || memcmp(p->text.ptr + p->at, words[i].text.ptr, len) != 0)
            continue;
        mg_rc rc = add_scalar(p, words[i].type, p->at + len, &v);
        if (v)
            v->boolean = words[i].boolean;
        return rc;
    }

    return fail_unexpected(p, "a value");
}

/* Reads a scalar whole, or the opening of a container (*ret_opened) and, of an object, its first key. */
static mg_rc read_value(struct parser *p, bool *ret_opened)
{
    char c;
    mg_rc rc;

    *ret_opened = false;
    p->in_value = true;
    skip_space(p);
    c = p->at < p->text.len ? p->text.ptr[p->at] : '\0';
    if (c == '"')
        return read_string(p);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(p);
    if (c != '{' && c != '[')
        return read_word(p);

    rc = open_container(p, c == '{' ? MG_JSON_OBJECT : MG_JSON_ARRAY);
    if (rc < 0)
        return rc;
    p->in_value = false;
    skip_space(p);
    if (p->at < p->text.len && p->text.ptr[p->at] == (c == '{' ? '}' : ']'))
        return close_container(p);
    *ret_opened = true;
    return c == '{' ? read_key(p) : MG_OK;
}

/* Behind a value: closes what ends here. *ret_more: a comma, so another value (its key read) follows. */
static mg_rc read_after_value(struct parser *p, bool *ret_more)
{
    *ret_more = false;
    p->in_value = false;
    while (p->depth) {
        bool object = p->frames[p->depth - 1].object;
        skip_space(p);
        char c = p->at < p->text.len ? p->text.ptr[p->at] : '\0';
        if (c == ',') {
            p->at++;
            *ret_more = true;
            return object ? read_key(p) : MG_OK;
        }
        if (c != (object ? '}' : ']'))
            return fail_unexpected(p, object ? "',' or '}'" : "',' or ']'");
        mg_rc rc = close_container(p);
        if (rc < 0)
            return rc;
    }

    return MG_OK;
}

static mg_rc check_start(struct parser *p)
{
    static const struct {
        struct mg_sv bytes;
        const char *name;
    } marks[] = {
        {MG_SV("\xef\xbb\xbf"), "a byte order mark (EF BB BF)"},
        {MG_SV("\xfe\xff"), "a UTF-16 byte order mark (FE FF)"},
        {MG_SV("\xff\xfe"), "a UTF-16 byte order mark (FF FE)"},
    };

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (p->text.len >= marks[i].bytes.len && memcmp(p->text.ptr, marks[i].bytes.ptr, marks[i].bytes.len) == 0)
            return fail(p, 0, "invalid JSON: %s, which is not allowed; send UTF-8 without it,", marks[i].name);
    skip_space(p);
    return p->at < p->text.len ? MG_OK : fail(p, p->at, "invalid JSON: the text is empty");
}

static mg_rc run(struct parser *p)
{
    bool more = true;
    mg_rc rc = check_start(p);

    while (rc == MG_OK && more) {
        bool opened;
        rc = read_value(p, &opened);
        if (rc == MG_OK && !opened)
            rc = read_after_value(p, &more);
    }
    if (rc < 0)
        return rc;
    skip_space(p);
    return p->at < p->text.len ? fail_unexpected(p, "the end of the text") : MG_OK;
}

mg_rc mg_json_parse(struct mg_arena *a, struct mg_sv text, const struct mg_json_limits *lim, struct mg_json **ret,
                    struct mg_err *err)
{
    struct parser p = {.text = text, .arena = a, .lim = *lim, .err = err};
    mg_rc rc = run(&p);

    free(p.frames);
    if (rc == MG_OK)
        *ret = p.root;
    return rc;
}

mg_rc mg_json_check(struct mg_sv text, uint32_t max_depth, struct mg_err *err)
{
    struct parser p = {.text = text, .lim = {.max_depth = max_depth}, .err = err};
    mg_rc rc = run(&p);

    free(p.frames);
    return rc;
}
