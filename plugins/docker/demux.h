/* Taking the Engine's stream apart: its own framing (8 bytes and a piece of standard output or error) outside, the frames
 * of mux.h inside of standard output. Fed with pieces of any size. */
#ifndef MANGO_DOCKER_DEMUX_H
#define MANGO_DOCKER_DEMUX_H

#include <stdbool.h>
#include <stdint.h>

#include "docker/mux.h"

enum {
    ENGINE_HEAD = 8,
    ENGINE_PIECE_MAX = 16 * 1024 * 1024, /* bytes; the Engine's own are 32 KiB */
    WORDS_MAX = 300,                     /* bytes of standard error that are kept: why the program could not run */
};

struct frame {
    struct frame *next;
    struct mux_head head;
    char data[];
};

struct demux {
    void *ctx;
    void (*frame)(void *ctx, struct frame *f); /* owns f afterwards */
    /* its own */
    unsigned char outer[ENGINE_HEAD];
    uint32_t n_outer, left; /* bytes of outer; bytes of the present piece that are still to come */
    unsigned char inner[sizeof(struct mux_head)];
    uint32_t n_inner;
    struct frame *part;
    uint32_t n_part;
    char words[WORDS_MAX + 1];
    uint32_t n_words;
};

/* False when it is no such stream, or memory is gone: it must be given up. */
bool demux_feed(struct demux *d, const char *p, uint64_t n);
void demux_free(struct demux *d);

#endif
