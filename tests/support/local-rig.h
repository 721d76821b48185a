/* The backend `local` as mangod loads it, one box for each test, and what runs in it. One per test program. */
#ifndef MG_TESTS_LOCAL_RIG_H
#define MG_TESTS_LOCAL_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "plugin/plugin.h"
#include "support/plugin-build.h"

#define MS_NS UINT64_C(1000000)

enum {
    OUT_MAX = 64 * 1024 * 1024,
    QUICK_MS = 8000, /* the cases say 1 s, of a machine that does nothing else; far below what waiting for the wrong
                        thing takes */
};

static inline struct mango_sv text_sv(const char *text)
{
    return (struct mango_sv){text, strlen(text)};
}

/* The folder of plugins of this program, and the folder of local's boxes, which local_load reads. */
extern char local_plugins[PLUGIN_PATH_MAX], local_base[PLUGIN_PATH_MAX + 32];
extern struct mg_plugin *local_plugin;

/* For cmocka: the group builds and loads the plugin. */
int local_group_up(void **state);
int local_group_down(void **state);
/* The plugin once more, as another process of the server has it; NULL with a reason. mg_plugin_close when done. */
struct mg_plugin *local_load(struct mg_err *err);

/* ---- the box of a test ---- */

struct box {
    struct mg_buf id, root, identity;
};

extern struct box the_box;
extern const char box_label[], box_owner[]; /* of the_box */

#define BOX_TEST(f) cmocka_unit_test_setup_teardown(f, box_up, box_down)
int box_up(void **state);
int box_down(void **state);
/* attach: the id to attach to, or NULL to create. box_close(ret) in any case. */
mango_status box_open(struct mg_plugin *p, const char *label, const char *attach, struct box *ret, struct mg_err *err);
void box_close(struct box *b);
mango_status box_destroy(void);
struct mango_sv box_id(void);

/* ---- commands in it ---- */

struct outcome {
    struct mango_exec_result r;
    struct mg_buf out, err;
    struct mg_err error;
    mango_status status;
    uint64_t ms; /* that it took */
};

struct how {
    const char *in, *cwd;
    uint64_t limit_ms, max_output; /* 0: 20 s, no limit */
    struct mg_cancel *cancel;
    const char *env; /* one NAME=VALUE */
    uint64_t in_len; /* 0: in is text */
};

/* outcome_done when done with it. */
struct outcome box_run_argv(const char *const *argv, struct how how);
struct outcome box_run(const char *script, struct how how);
void outcome_done(struct outcome *o);
/* A sink whose context is a struct outcome. */
int32_t outcome_collect(void *ctx, int32_t stream, const char *p, uint64_t n);
/* Asserts that it ended well with this text at stdout. */
void outcome_is(struct outcome *o, const char *out);
/* Runs the script and asserts that it exits with this text at stdout. */
void box_says(const char *script, const char *out);

/* Processes of this machine whose command line holds the marker. */
int marked_count(const char *marker);
/* Waits for the count, at most QUICK_MS. */
bool marked_becomes(const char *marker, int wanted);

/* ---- files in it ---- */

/* outcome_done(o) in any case. */
mango_status box_read(struct mango_sv path, uint64_t offset, uint64_t max, struct outcome *o, int32_t *eof);
mango_status box_write(struct mango_sv path, const char *p, uint64_t n, struct mg_err *err);
mango_status box_try_write(const char *path, const char *text);
mango_status box_try_read(const char *path); /* asserts that it is quick */
/* Asserts that the whole file is this text. */
void box_holds(const char *path, const char *text);
/* Asserts the status of the call. */
struct mango_stat box_stat(const char *path, mango_status want);

#endif
