#include "common/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the head of an entry, as POSIX has it ---- */

struct head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
    char type, link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct head) == TAR_BLOCK, "a head is a block");

static void octal(char *field, unsigned width, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%0*llo", (int)width - 1, (unsigned long long)v);
    memcpy(field, text, width - 1); /* one that does not fit stands in a pax head too */
}

static void put_sum(struct head *h)
{
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;
    memset(h->sum, ' ', sizeof(h->sum));
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += p[i];
    snprintf(h->sum, sizeof(h->sum), "%06o", sum);
}

static char type_of(char kind)
{
    return kind == 'd' ? '5' : kind == 'l' ? '2' : kind == 'h' ? '1' : '0';
}

static void put_head(struct text *out, const struct tar_entry *e, char type, struct mango_sv path)
{
    struct head h = {0};
    memcpy(h.name, path.ptr, path.len < sizeof(h.name) ? path.len : sizeof(h.name));
    octal(h.mode, sizeof(h.mode), e->mode & 07777);
    octal(h.uid, sizeof(h.uid), e->uid);
    octal(h.gid, sizeof(h.gid), e->gid);
    octal(h.size, sizeof(h.size), e->size);
    octal(h.mtime, sizeof(h.mtime), e->mtime_s > 0 ? (uint64_t)e->mtime_s : 0);
    h.type = type;
    memcpy(h.link, e->link.ptr ? e->link.ptr : "", e->link.len < sizeof(h.link) ? e->link.len : sizeof(h.link));
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    put_sum(&h);
    text_bytes(out, (const char *)&h, sizeof(h));
}

/* "LEN name=value\n", where LEN counts itself. */
static void put_record(struct text *out, const char *name, struct mango_sv value)
{
    char digits[24];
    uint64_t bare = strlen(name) + value.len + 3, len = bare + 1;
    for (int i = 0; i < 3; i++) {
        int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)len);
        len = bare + (uint64_t)n;
    }
    text_printf(out, "%llu %s=", (unsigned long long)len, name);
    text_sv(out, value);
    text_add(out, "\n");
}

void tar_head(struct text *out, const struct tar_entry *e)
{
    text_auto struct text pax = {0};
    struct tar_entry plain = *e;
    if (e->kind != 'f')
        plain.size = 0;
    if (e->path.len > 100)
        put_record(&pax, "path", e->path);
    if (e->link.len > 100)
        put_record(&pax, "linkpath", e->link);
    if (plain.size >= UINT64_C(1) << 33) {
        char digits[24];
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)plain.size);
        put_record(&pax, "size", sv_z(digits));
    }
    if (pax.len > 0) {
        const struct tar_entry head = {.size = pax.len, .mode = 0644};
        put_head(out, &head, 'x', sv_z("pax"));
        text_sv(out, text_view(&pax));
        tar_pad(out, pax.len);
    }
    out->bad |= pax.bad;
    put_head(out, &plain, type_of(e->kind), e->path);
}

void tar_pad(struct text *out, uint64_t size)
{
    static const char zeros[TAR_BLOCK];
    text_bytes(out, zeros, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

void tar_end(struct text *out)
{
    static const char zeros[2 * TAR_BLOCK];
    text_bytes(out, zeros, sizeof(zeros));
}

/* ---- reading ---- */

enum { AT_HEAD, IN_CONTENT, IN_PAX, IN_IGNORED, FAILED, STOPPED };

/* Octal text, or GNU's binary form. False when it is neither. */
static bool number(const char *p, unsigned n, uint64_t *ret)
{
    uint64_t v = 0;
    unsigned i = 0;
    if ((unsigned char)p[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (v >> 56)
                return false;
            v = v << 8 | (unsigned char)p[i];
        }
        *ret = v;
        return true;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60)
            return false;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    *ret = v;
    return i == n || p[i] == ' ' || p[i] == '\0';
}

static bool sum_ok(const struct head *h)
{
    const unsigned char *p = (const unsigned char *)h;
    uint64_t want;
    unsigned sum = 0, from = offsetof(struct head, sum);
    for (unsigned i = 0; i < TAR_BLOCK; i++)
        sum += i >= from && i < from + sizeof(h->sum) ? ' ' : p[i];
    return number(h->sum, sizeof(h->sum), &want) && want == sum;
}

static bool all_zero(const char *p)
{
    for (unsigned i = 0; i < TAR_BLOCK; i++) {
        if (p[i])
            return false;
    }
    return true;
}

static void set(struct text *t, const char *p, uint64_t n)
{
    t->len = 0;
    text_bytes(t, p, n);
}

/* The records of an extended head. */
static bool read_pax(struct tar_reader *r)
{
    const char *p = text_view(&r->pax).ptr, *end = p + r->pax.len;
    while (p < end && *p) {
        uint64_t len = 0;
        const char *q = p;
        for (; q < end && *q >= '0' && *q <= '9' && len < TAR_PAX_MAX; q++)
            len = len * 10 + (uint64_t)(*q - '0');
        if (q == p || q == end || *q != ' ' || len > (uint64_t)(end - p) || p + len <= q + 1 || p[len - 1] != '\n')
            return false;
        const char *name = q + 1, *stop = p + len - 1, *eq = memchr(name, '=', (size_t)(stop - name));
        if (!eq)
            return false;
        uint64_t n = (uint64_t)(eq - name), value = (uint64_t)(stop - eq - 1);
        if (n == 4 && memcmp(name, "path", 4) == 0)
            set(&r->path, eq + 1, value);
        else if (n == 8 && memcmp(name, "linkpath", 8) == 0)
            set(&r->link, eq + 1, value);
        else if (n == 4 && memcmp(name, "size", 4) == 0) {
            r->pax_size = 0;
            for (const char *c = eq + 1; c < stop; c++) {
                if (*c < '0' || *c > '9' || r->pax_size > UINT64_MAX / 16)
                    return false;
                r->pax_size = r->pax_size * 10 + (uint64_t)(*c - '0');
            }
            r->has_size = true;
        }
        p += len;
    }
    return !r->path.bad && !r->link.bad;
}

static struct mango_sv field(const char *p, unsigned n)
{
    return (struct mango_sv){p, strnlen(p, n)};
}

static char kind_of(char type)
{
    switch (type) {
    case '0':
    case '\0':
    case '7':
        return 'f';
    case '1':
        return 'h';
    case '2':
        return 'l';
    case '5':
        return 'd';
    default:
        return 'o';
    }
}

/* GNU's long names: the content of an entry of its own is the path of the next. */
static bool begin_special(struct tar_reader *r, char type, uint64_t size)
{
    if (size > TAR_PAX_MAX)
        return false;
    r->pax.len = 0;
    r->left = size;
    r->pad = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
    r->state = type == 'g' ? IN_IGNORED : IN_PAX;
    r->special = type;
    return true;
}

static int on_entry(struct tar_reader *r, const struct head *h)
{
    char joined[sizeof(h->prefix) + sizeof(h->name) + 2];
    struct tar_entry e = {.kind = kind_of(h->type)};
    uint64_t mode, uid, gid, size, mtime;
    if (!number(h->mode, sizeof(h->mode), &mode) || !number(h->uid, sizeof(h->uid), &uid) ||
        !number(h->gid, sizeof(h->gid), &gid) || !number(h->size, sizeof(h->size), &size) ||
        !number(h->mtime, sizeof(h->mtime), &mtime))
        return TAR_BAD;
    if (h->type == 'x' || h->type == 'g' || h->type == 'L' || h->type == 'K')
        return begin_special(r, h->type, size) ? TAR_OK : TAR_BAD;
    bool ustar = memcmp(h->magic, "ustar", 6) == 0;
    struct mango_sv prefix = ustar ? field(h->prefix, sizeof(h->prefix)) : field("", 0);
    struct mango_sv name = field(h->name, sizeof(h->name));
    snprintf(joined, sizeof(joined), "%.*s%s%.*s", (int)prefix.len, prefix.ptr, prefix.len ? "/" : "", (int)name.len,
             name.ptr);
    e.path = r->path.len ? text_view(&r->path) : sv_z(joined);
    e.link = r->link.len ? text_view(&r->link) : field(h->link, sizeof(h->link));
    size = r->has_size ? r->pax_size : size;
    if (e.path.len == 0 || e.path.len > TAR_PATH_MAX || e.link.len > TAR_PATH_MAX || size > INT64_MAX)
        return TAR_BAD;
    e.size = e.kind == 'f' ? size : 0;
    e.mode = (uint32_t)(mode & 07777);
    e.uid = (uint32_t)uid;
    e.gid = (uint32_t)gid;
    e.mtime_s = (int64_t)mtime;
    int rc = r->entry(r->ctx, &e) == 0 ? TAR_OK : TAR_STOPPED;
    r->path.len = r->link.len = 0;
    r->has_size = false;
    /* Only files have content; what others claim is skipped. */
    r->left = e.kind == 'f' || e.kind == 'o' ? size : 0;
    r->pad = (TAR_BLOCK - r->left % TAR_BLOCK) % TAR_BLOCK;
    r->state = e.kind == 'f' ? IN_CONTENT : IN_IGNORED;
    return rc;
}

static int on_block(struct tar_reader *r)
{
    const struct head *h = (const struct head *)r->block;
    if (all_zero(r->block)) {
        r->ended = true;
        return TAR_OK;
    }
    if (r->ended)
        return TAR_OK; /* behind the end: not ours */
    return sum_ok(h) ? on_entry(r, h) : TAR_BAD;
}

static int content_done(struct tar_reader *r)
{
    int state = r->state;
    r->state = AT_HEAD;
    if (state != IN_PAX)
        return TAR_OK;
    char type = r->special;
    if (type == 'x')
        return read_pax(r) ? TAR_OK : TAR_BAD;
    struct mango_sv name = text_view(&r->pax);
    set(type == 'L' ? &r->path : &r->link, name.ptr, strnlen(name.ptr, name.len));
    return TAR_OK;
}

/* Takes what it can; returns the number of bytes or a negative result. */
static int64_t step(struct tar_reader *r, const char *p, uint64_t n)
{
    if (r->state == AT_HEAD) {
        uint64_t take = TAR_BLOCK - r->have < n ? TAR_BLOCK - r->have : n;
        memcpy(r->block + r->have, p, take);
        r->have += (uint32_t)take;
        if (r->have < TAR_BLOCK)
            return (int64_t)take;
        r->have = 0;
        int rc = on_block(r);
        if (rc == TAR_OK && r->state != AT_HEAD && r->left + r->pad == 0)
            rc = content_done(r);
        return rc < 0 ? rc : (int64_t)take;
    }
    uint64_t take = r->left < n ? r->left : n;
    int rc = TAR_OK;
    if (take > 0 && r->state == IN_CONTENT && r->content)
        rc = r->content(r->ctx, p, take) == 0 ? TAR_OK : TAR_STOPPED;
    else if (take > 0 && r->state == IN_PAX)
        text_bytes(&r->pax, p, take);
    r->left -= take;
    if (r->left == 0) {
        uint64_t skip = r->pad < n - take ? r->pad : n - take;
        r->pad -= skip;
        take += skip;
        if (rc == TAR_OK && r->pad == 0)
            rc = content_done(r);
    }
    return rc < 0 ? rc : (int64_t)take;
}

int tar_feed(struct tar_reader *r, const char *p, uint64_t n)
{
    while (n > 0) {
        if (r->state == FAILED)
            return TAR_BAD;
        if (r->state == STOPPED)
            return TAR_STOPPED;
        int64_t took = step(r, p, n);
        if (took < 0) {
            r->state = took == TAR_STOPPED ? STOPPED : FAILED;
            return (int)took;
        }
        p += took;
        n -= (uint64_t)took;
    }
    return TAR_OK;
}

bool tar_whole(const struct tar_reader *r)
{
    return r->ended && r->state == AT_HEAD;
}

void tar_free(struct tar_reader *r)
{
    text_free(&r->pax);
    text_free(&r->path);
    text_free(&r->link);
}
