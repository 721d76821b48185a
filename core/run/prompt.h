/* What the server adds to an agent's system prompt. */
#ifndef MG_RUN_PROMPT_H
#define MG_RUN_PROMPT_H

#include "base/arena.h"
#include "base/sv.h"

/* Puts text behind the prompt, which is a raw JSON string, with an empty line between them. Arena memory. */
void mg_prompt_add(struct mg_arena *a, struct mg_sv text, struct mg_sv *prompt);

#endif
