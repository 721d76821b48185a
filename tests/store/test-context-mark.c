/* What a request is loaded from: the transcript behind the newest summary, and the marks that still count. */
#include <stdio.h>

#include "store/transcript.h"
#include "support/pgtest.h"
#include "unit/unit.h"

struct fixture {
    struct mg_pgtest *db;
    struct mg_pg *pg;
    struct mg_arena *a;
    struct mg_id session, thread;
};

static const char rows[] =
    "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', 'wrkspc_default', 'e', "
    "'cloud', '{}');"
    "INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config) "
    "VALUES"
    " ('sesn_1', 'wrkspc_default', 'agent_1', 1, '{}', 'env_1', 'cloud', '{}');"
    "INSERT INTO session_state (session_id, turn_step, turn_trigger, transcript_len) VALUES ('sesn_1', 'model', 5, 20)";

static int setup(void **state)
{
    struct fixture *f = test_calloc(1, sizeof(*f));
    struct mg_err err = {0};
    f->db = pgtest_new();
    f->pg = mg_pg_new(pgtest_conninfo(f->db));
    f->a = mg_arena_new();
    (void)mg_id_from(MG_SV("sesn_1"), &f->session);
    if (mg_pg_script(f->pg, rows, &err) < 0)
        fail_msg("%s", err.text);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_arena_free(f->a);
    mg_pg_free(f->pg);
    pgtest_free(f->db);
    test_free(f);
    return 0;
}

static void append(struct fixture *f, int n)
{
    struct mg_err err = {0};
    mg_auto(txn) struct mg_txn t = mg_txn_on(f->pg);
    for (int i = 0; i < n; i++) {
        const struct mg_transcript_row row = {.assistant = i % 2,
                                              .content = mg_arena_printf(f->a, "[%d]", i),
                                              .tokens = i % 2 ? 100 + i : 0,
                                              .fixed = i % 2};
        if (mg_transcript_append(f->a, &t, &f->session, &f->thread, i, &row, 1, &err) < 0)
            fail_msg("%s", err.text);
    }
    if (mg_txn_commit(&t, &err) < 0)
        fail_msg("%s", err.text);
}

static void mark(struct fixture *f, enum mg_mark_kind kind, int64_t a, const char *content)
{
    struct mg_err err = {0};
    mg_auto(txn) struct mg_txn t = mg_txn_on(f->pg);
    const struct mg_context_mark m = {
        .kind = kind, .a = a, .made_at = 20, .turn = 5, .b = 1, .content = mg_sv_of(content)};
    mg_rc rc = mg_context_mark_add(f->a, &t, &f->session, &f->thread, &m, &err);
    if (rc == MG_OK)
        rc = mg_txn_commit(&t, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
}

static void load(struct fixture *f, struct mg_res **res, struct mg_turn_input *in)
{
    struct mg_err err = {0};
    if (mg_turn_input_load(f->a, f->pg, &f->session, &f->thread, 0, res, in, &err) < 0)
        fail_msg("%s", err.text);
}

static void without_marks_the_whole_transcript_comes(void **state)
{
    struct fixture *f = *state;
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_turn_input in;
    append(f, 20);
    load(f, &res, &in);
    assert_int_equal(in.n_rows, 20);
    assert_int_equal(in.n_marks, 0);
    assert_int_equal(in.len, 20);
    assert_int_equal(in.turn, 5);
    assert_sv_equal(in.rows[0].content, "[0]");
    assert_int_equal(in.rows[0].tokens, 0);
    assert_int_equal(in.rows[19].tokens, 119);
    assert_int_equal(in.rows[19].fixed, 1);
}

static void the_newest_summary_bounds_what_comes_and_older_ones_stay_away(void **state)
{
    struct fixture *f = *state;
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_turn_input in;
    append(f, 20);
    mark(f, MG_MARK_SUMMARY, 4, "[\"old\"]");
    mark(f, MG_MARK_REFUSED, 9000, "");
    mark(f, MG_MARK_SUMMARY, 12, "[\"new\"]");
    mark(f, MG_MARK_REPLACED, 15, "a note");
    mark(f, MG_MARK_REFUSED, 8000, "");
    load(f, &res, &in);
    assert_int_equal(in.n_rows, 8);
    assert_sv_equal(in.rows[0].content, "[12]");
    static const enum mg_mark_kind kinds[] = {MG_MARK_REFUSED, MG_MARK_SUMMARY, MG_MARK_REPLACED, MG_MARK_REFUSED};
    static const int64_t as[] = {9000, 12, 15, 8000};
    assert_int_equal(in.n_marks, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(in.marks[i].kind, kinds[i]);
        assert_int_equal(in.marks[i].a, as[i]);
        assert_int_equal(in.marks[i].made_at, 20);
    }
    assert_sv_equal(in.marks[1].content, "[\"new\"]");
    assert_sv_equal(in.marks[2].content, "a note");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_marks_the_whole_transcript_comes),
        TEST(the_newest_summary_bounds_what_comes_and_older_ones_stay_away),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : RUN(tests);
}
