#include "docker/demux.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_OUT = 1, STREAM_ERR = 2 };

static uint32_t smaller(uint32_t a, uint64_t b)
{
    return a < b ? a : (uint32_t)b;
}

static void keep_words(struct demux *d, const char *p, uint32_t n)
{
    uint32_t room = smaller(WORDS_MAX - d->n_words, n);
    memcpy(d->words + d->n_words, p, room);
    for (uint32_t i = 0; i < room; i++) {
        char *c = &d->words[d->n_words + i];
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7F)
            *c = ' ';
    }
    d->n_words += room;
    d->words[d->n_words] = '\0';
}

static bool begin(struct demux *d)
{
    struct mux_head h;
    memcpy(&h, d->inner, sizeof(h));
    if (h.len > MUX_DATA_MAX)
        return false;
    d->part = malloc(sizeof(*d->part) + h.len + 1);
    if (!d->part)
        return false;
    *d->part = (struct frame){.head = h};
    d->n_part = 0;
    return true;
}

static void finish(struct demux *d)
{
    struct frame *f = d->part;
    f->data[f->head.len] = '\0';
    d->part = NULL;
    d->n_inner = 0;
    d->frame(d->ctx, f);
}

/* Bytes of standard output. */
static bool feed_inner(struct demux *d, const char *p, uint32_t n)
{
    while (n > 0) {
        uint32_t take;
        if (!d->part) {
            take = smaller((uint32_t)sizeof(d->inner) - d->n_inner, n);
            memcpy(d->inner + d->n_inner, p, take);
            d->n_inner += take;
            if (d->n_inner == sizeof(d->inner) && !begin(d))
                return false;
        } else {
            take = smaller(d->part->head.len - d->n_part, n);
            memcpy(d->part->data + d->n_part, p, take);
            d->n_part += take;
        }
        if (d->part && d->n_part == d->part->head.len)
            finish(d);
        p += take;
        n -= take;
    }
    return true;
}

bool demux_feed(struct demux *d, const char *p, uint64_t n)
{
    while (n > 0) {
        uint32_t take;
        if (d->left == 0) {
            take = smaller(ENGINE_HEAD - d->n_outer, n);
            memcpy(d->outer + d->n_outer, p, take);
            d->n_outer += take;
            if (d->n_outer == ENGINE_HEAD) {
                const unsigned char *o = d->outer;
                d->left = (uint32_t)o[4] << 24 | (uint32_t)o[5] << 16 | (uint32_t)o[6] << 8 | o[7];
                d->n_outer = 0;
                if (o[0] > STREAM_ERR || o[1] || o[2] || o[3] || d->left > ENGINE_PIECE_MAX)
                    return false;
            }
        } else {
            take = smaller(d->left, n);
            if (d->outer[0] == STREAM_ERR)
                keep_words(d, p, take);
            else if (d->outer[0] == STREAM_OUT && !feed_inner(d, p, take))
                return false;
            d->left -= take;
        }
        p += take;
        n -= take;
    }
    return true;
}

void demux_free(struct demux *d)
{
    free(d->part);
    d->part = NULL;
}
