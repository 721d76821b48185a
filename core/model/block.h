/* One content block while its deltas arrive; used by message.c alone. */
#ifndef MG_MODEL_BLOCK_H
#define MG_MODEL_BLOCK_H

#include "json/json.h"
#include "model/model.h"

struct mg_open_block;

/* block: the content_block of content_block_start, or a block of a whole message. Its text is copied into arena;
 * scratch is for the call. NULL when it cannot be a block; *ret_problem says why. */
struct mg_open_block *mg_open_block_new(struct mg_arena *arena, struct mg_arena *scratch, const struct mg_json *block,
                                        const char **ret_problem);
void mg_open_block_free(struct mg_open_block *b);
enum mg_block_kind mg_open_block_kind(const struct mg_open_block *b);
struct mg_sv mg_open_block_tool_id(const struct mg_open_block *b); /* empty unless TOOL_USE */
/* Folds a delta in: string members are appended to the member of the same name, others replace it; partial_json extends
 * input, citation extends citations. NULL, or what is wrong with it. */
const char *mg_open_block_delta(struct mg_open_block *b, struct mg_arena *scratch, const struct mg_json *delta);
void mg_open_block_stop(struct mg_open_block *b); /* content_block_stop came: the block is whole */
/* The finished block. last_of_cut: the answer hit a limit inside of or right behind this block. */
struct mg_model_block mg_open_block_close(struct mg_open_block *b, struct mg_arena *arena, bool last_of_cut);

/* A raw JSON string without its quotes; an empty view for anything else. */
struct mg_sv mg_raw_inner(struct mg_sv raw);

#endif
