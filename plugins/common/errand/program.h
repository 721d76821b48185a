/* Shared by the files of `mango-rbox errand`. Single-threaded; every process of it does one thing and ends. */
#ifndef MANGO_COMMON_ERRAND_PROGRAM_H
#define MANGO_COMMON_ERRAND_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "common/errand/errand.h"
#include "common/inside/inside.h"

/* What is left of the request. bad is sticky: what is read then is empty. */
struct fields {
    const char *at;
    size_t left;
    bool bad;
};
uint64_t field_number(struct fields *f);
struct mango_sv field_text(struct fields *f);
const char *field_z(struct fields *f); /* a string without NUL; memory of its own, never freed */

/* The sandbox as this program has it. */
struct place {
    struct confine ws;
    int dir;           /* ERRAND_DIR */
    const char *spare; /* folder of a command that is forgotten, for the one to be started; NULL: there is none */
};

/* ---- main.c ---- */
/* self: the program's path; argv: what stands behind the subcommand. The exit status. */
int errand_main(const char *self, char **argv, int argc);
void answer(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void answer_content(char kind, uint64_t offset, const char *p, size_t n);
void answer_flush(void);                        /* answers are gathered; the end of an errand sends what there is */
int answer_error(int errnum, const char *text); /* 0: the errand is done as far as the service is concerned */
bool name_ok(const char *name, const char *prefix, size_t digits);
void remove_run(int dir, const char *name);

/* ---- talk.c ---- */
int talk_errands(const char *self);

/* ---- run.c ---- */
int run_errand(const struct place *p, struct fields *f);

/* ---- wait.c ---- */
struct wait_for {
    const char *id;
    uint64_t out, err; /* bytes that have come */
    uint64_t ms, soon_ms;
    int news; /* readable when there may be something new (NEWS_*); -1: the folder is watched. The wait's own */
};
enum { NEWS_OUTPUT = 'o', NEWS_RESULT = 'r' };
bool wait_fields(struct fields *f, struct wait_for *w);
int wait_errand(const struct place *p, const struct wait_for *w);
int kill_errand(const struct place *p, const char *id, bool limit);
int open_run(const struct place *p, const char *id); /* its folder, or -1 */

/* ---- file.c ---- */
int read_errand(const struct place *p, struct fields *f);
int put_errand(const struct place *p, struct fields *f);
int stat_errand(const struct place *p, struct fields *f);

#endif
