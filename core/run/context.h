/* What of a transcript a request shows: the summary that stands for its beginning, excerpts of long texts, notes in place of refused
 * blocks; and how many tokens that is. The transcript is never rewritten: the same marks give the same bytes, so that the endpoint's cache
 * keeps working. Pure, but for the arena. */
#ifndef MG_RUN_CONTEXT_H
#define MG_RUN_CONTEXT_H

#include "model/request.h"
#include "model/window.h"
#include "store/transcript.h"

enum {
    MG_CONTEXT_EXCERPT =
        3000, /* bytes of a long text that an excerpt keeps: three quarters of its head, one of its tail (CX3) */
    MG_CONTEXT_REPLACE_MAX = 8,     /* blocks that may be replaced in one turn; each costs a request */
    MG_CONTEXT_IMAGE_TOKENS = 4800, /* the most that an endpoint counts for an image within its limits */
    MG_CONTEXT_PDF_TOKENS =
        100000, /* the most that a PDF is thought to count: its bytes say little, and the endpoint says when it is more */
    MG_CONTEXT_SUMMARY = -1, /* entry number of the summary */
};

struct mg_context_entry {
    bool assistant;
    struct mg_sv content; /* raw JSON array, as it is shown */
    int64_t number;       /* of the transcript, from 0; or MG_CONTEXT_SUMMARY */
    int64_t tokens;       /* estimated; 0: not yet */
    int64_t measured;     /* what the endpoint counted up to and including this one in this context; 0: nothing */
};

struct mg_context {
    struct mg_arena *a;
    struct mg_context_entry *entries; /* the last is the turn's input where it is not in the transcript yet */
    int n;
    int64_t fixed_tokens; /* model, system, tools: estimated */
    struct mg_window window;
    const struct mg_turn_input *in;
    const struct mg_context_mark *summary; /* the newest, or NULL */
    bool forced;                           /* the endpoint refused what this context would send */
    int refusals;                          /* in this turn */
    int replacements;                      /* in this turn */
    bool again;                            /* this very request was compacted already */
};

/* user_content: the turn's input that is not in the transcript, or empty. fixed: fingerprint of the fixed part, whose length is fixed_bytes. */
void mg_context_build(struct mg_context *c, struct mg_arena *a, const struct mg_turn_input *in,
                      struct mg_sv user_content, int64_t fixed, size_t fixed_bytes, struct mg_window window);
/* Of the whole request, or of its first n entries; measured where it was, estimated on the safe side where not. */
int64_t mg_context_tokens(struct mg_context *c, int n);
int64_t mg_context_entry_tokens(struct mg_context *c, int i);
/* Of a raw content array: a third of its bytes, images and documents by kind. */
int64_t mg_content_tokens(struct mg_sv content);
int64_t mg_content_pdf_tokens(int64_t bytes); /* of a document by its size, where only that is known */
int64_t mg_content_text_tokens(int64_t bytes);
/* As the model sees it once more room is needed: long texts cut to excerpts, images left out. The same content when nothing changes. */
struct mg_sv mg_content_excerpt(struct mg_arena *a, struct mg_sv content);
/* With block number `block` replaced by note, so that calls and results stay paired; the same content when the block cannot be replaced. */
struct mg_sv mg_content_replace(struct mg_arena *a, struct mg_sv content, int64_t block, struct mg_sv note);
/* Bytes of text that one tool result may bring into a context of that window. */
size_t mg_context_result_max(struct mg_window w);
bool mg_content_has(struct mg_arena *a, struct mg_sv content, const char *type); /* a block of that type */

#endif
