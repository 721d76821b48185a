/* What the fuzzers share. Each fuzz-NAME.c defines LLVMFuzzerTestOneInput: with --enable-fuzzers it is linked with libFuzzer, else with
 * replay.c, which runs it over corpus/NAME in `make check`. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that must hold for every input. */
static inline void fuzz_check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: does not hold: %s\n", what);
    abort();
}

static inline struct mg_sv fuzz_text(const uint8_t *data, size_t size)
{
    return mg_sv_n((const char *)data, size);
}

/* A refusal says something. */
static inline void fuzz_check_err(mg_rc rc, const struct mg_err *err)
{
    fuzz_check(rc <= 0, "a result is 0 or negative");
    fuzz_check(rc == MG_OK || err->text[0] != '\0', "a refusal has a text");
}

#endif
