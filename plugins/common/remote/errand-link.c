#include "common/remote/errand-link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/websocket.h"

enum {
    SOON_MS = ERRAND_TALK_MS * 2 /
              3,     /* after an errand: the program is still there; opened when the next one comes so soon */
    OPEN_MS = 5000,  /* to open it, all in all */
    HEARD_MS = 2000, /* for an errand to be taken up */
    WRITE_MS = 5000,
    STREAK = 1,          /* errands that come soon after another, before it is worth to open one */
    AGAIN_MS = 60000,    /* after a failure, until it is tried again; doubled with each more */
    AGAIN_DOUBLED = 6,   /* times: about an hour */
    CANCELLED_MS = 1000, /* after an errand that nobody waits for any more: the program still does */
    NAME_DIGITS = 24,
    MARGIN_MS = 10000, /* that an answer may take beyond what its errand waits for */
    LINE_MAX = 256,    /* bytes of a line of its own */
};

/* Used by whoever has set busy; busy and times are guarded by the lock of the box. */
struct link {
    bool busy;
    uint64_t used_ns, closed_until_ns; /* used_ns: end of the last errand, on whatever way */
    unsigned streak, failures;         /* guarded as well */
    struct websocket ws;
    uint64_t number; /* of the last errand */
};

static struct link *link_of(struct errands_box *b)
{
    if (!b->link)
        b->link = calloc(1, sizeof(*b->link));
    return b->link;
}

void link_free(struct errands_box *b)
{
    if (b->link)
        websocket_close(&b->link->ws);
    free(b->link);
}

static bool passed(uint64_t now, uint64_t since, uint64_t ms)
{
    return now - since > ms * UINT64_C(1000000);
}

/* Those that nobody uses: the program has gone, and what is left is a descriptor. */
static void sweep(struct errands *e, uint64_t now)
{
    pthread_mutex_lock(&e->lock);
    for (struct errands_box *b = e->boxes; b; b = b->next) {
        pthread_mutex_lock(&b->lock);
        if (b->link && !b->link->busy && b->link->ws.conn && passed(now, b->link->used_ns, ERRAND_TALK_MS))
            websocket_close(&b->link->ws);
        pthread_mutex_unlock(&b->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

/* NULL: busy, or errands come too seldom for one, or it has failed just now. */
static struct link *take(struct errands *e, struct errands_box *b)
{
    uint64_t now = now_ns(e->host);
    pthread_mutex_lock(&b->lock);
    struct link *l = link_of(b);
    bool soon = l && l->used_ns && !passed(now, l->used_ns, SOON_MS);
    bool mine = l && !l->busy && now >= l->closed_until_ns;
    if (mine) {
        if (!soon)
            websocket_close(&l->ws);
        l->streak = soon ? l->streak + 1 : 0;
        l->used_ns = now;
        mine = l->busy = l->streak >= STREAK;
    }
    pthread_mutex_unlock(&b->lock);
    return mine ? l : NULL;
}

static void give_back(struct errands *e, struct errands_box *b, struct link *l, mango_status s)
{
    pthread_mutex_lock(&b->lock);
    l->busy = false;
    l->used_ns = now_ns(e->host);
    l->failures = s == MANGO_OK ? 0 : l->failures + (s != MANGO_ECANCELED);
    if (s < 0) {
        unsigned doubled = l->failures - 1 < AGAIN_DOUBLED ? l->failures - 1 : AGAIN_DOUBLED;
        uint64_t ms = s == MANGO_ECANCELED ? CANCELLED_MS : (uint64_t)AGAIN_MS << doubled;
        websocket_close(&l->ws);
        l->closed_until_ns = l->used_ns + ms * UINT64_C(1000000);
    }
    pthread_mutex_unlock(&b->lock);
}

/* ---- lines ---- */

/* Looks for a line "mango:KIND NUMBER" among what comes. */
struct line {
    char text[LINE_MAX];
    uint32_t len;
};

static bool line_is(struct line *l, char c, const char *wanted)
{
    if (c != '\n' && c != '\r') {
        if (l->len + 1 < sizeof(l->text))
            l->text[l->len++] = c;
        return false;
    }
    l->text[l->len] = '\0';
    l->len = 0;
    return strcmp(l->text, wanted) == 0;
}

/* Reads until the line wanted has come; *rest is what came behind it. */
static mango_status wait_line(struct link *l, const struct mango_call *call, const char *wanted, struct mango_sv *rest)
{
    struct line line = {0};
    for (;;) {
        mango_status s = websocket_read(&l->ws, call, rest);
        if (s < 0)
            return s;
        while (rest->len > 0) {
            bool found = line_is(&line, *rest->ptr, wanted);
            rest->ptr++;
            rest->len--;
            if (found)
                return MANGO_OK;
        }
    }
}

/* Until the answer is whole; MANGO_ERETRY when the errand has ended without. */
static mango_status wait_answer(struct link *l, const struct mango_call *call, struct mango_sv have, struct reply *r)
{
    struct line line = {0};
    for (;;) {
        for (uint64_t i = 0; i < have.len; i++) {
            (void)reply_feed(r, 1, have.ptr + i, 1);
            if (r->last)
                return MANGO_OK;
            if (line_is(&line, have.ptr[i], ERRAND_MARK ">"))
                return MANGO_ERETRY;
        }
        mango_status s = websocket_read(&l->ws, call, &have);
        if (s < 0)
            return s;
    }
}

/* ---- the link ---- */

static mango_status open_it(struct errands *e, const struct mango_call *call, struct errands_box *b, struct link *l)
{
    struct mango_call own = remote_within(e->host, call, OPEN_MS);
    char name[sizeof("mango-") + NAME_DIGITS] = "mango-";
    text_auto struct text line = {0};
    struct mango_sv rest = {0};
    sweep(e, now_ns(e->host));
    own.err = NULL;
    random_hex(name + strlen(name), NAME_DIGITS);
    text_printf(&line, "exec '%s/" ERRAND_DIR "/%s' errand -t\n", b->root, e->name);
    mango_status s = line.bad ? MANGO_ERETRY : e->service->open_terminal(e->ctx, &own, b, name, &l->ws);
    if (s == MANGO_OK)
        s = websocket_send(&l->ws, &own, text_view(&line));
    if (s == MANGO_OK)
        s = wait_line(l, &own, ERRAND_MARK "t", &rest);
    if (s < 0)
        e->service->end_terminal(e->ctx, b, name);
    return s;
}

static mango_status exchange(struct errands *e, const struct mango_call *call, struct link *l, const struct text *coded,
                             uint32_t ms, struct reply *r, bool *ret_sent)
{
    struct mango_call out = remote_undo(e->host, WRITE_MS), in = remote_within(e->host, call, HEARD_MS);
    text_auto struct text line = {0};
    struct mango_sv rest = {0};
    char heard[LINE_MAX];
    in.err = NULL;
    text_printf(&line, "%llu ", (unsigned long long)++l->number);
    text_sv(&line, text_view(coded));
    text_add(&line, "\n");
    snprintf(heard, sizeof(heard), ERRAND_MARK "< %llu", (unsigned long long)l->number);
    if (line.bad)
        return MANGO_ERETRY;
    *ret_sent = true;
    mango_status s = websocket_send(&l->ws, &out, text_view(&line));
    if (s == MANGO_OK)
        s = wait_line(l, &in, heard, &rest);
    if (s < 0)
        return s;
    in = remote_within(e->host, call, ms + MARGIN_MS);
    in.err = NULL;
    return wait_answer(l, &in, rest, r);
}

bool link_errand(struct errands *e, const struct mango_call *call, struct errands_box *b, const struct text *coded,
                 uint32_t ms, struct reply *r, bool *ret_sent)
{
    struct link *l = e->service->open_terminal ? take(e, b) : NULL;
    *ret_sent = false;
    if (!l)
        return false;
    mango_status s = l->ws.conn ? MANGO_OK : open_it(e, call, b, l);
    if (s == MANGO_OK)
        s = exchange(e, call, l, coded, ms, r, ret_sent);
    give_back(e, b, l, s);
    return s == MANGO_OK && !r->bad;
}
