/* Issue, list, revoke, look up, bootstrap (semantics KE1 to KE3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/api-key.h"
#include "support/pgtest-rig.h"

#define DEFAULT MG_SV("wrkspc_default")
#define NONE MG_SV("")

static int setup(void **state)
{
    (void)state;
    return pgtest_up("INSERT INTO workspaces (id, name) VALUES ('wrkspc_other', 'Other');"
                     "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', "
                     "'wrkspc_default', 'e', 'self_hosted', '{}'),"
                     " ('env_gone', 'wrkspc_default', 'e', 'self_hosted', '{}');"
                     "UPDATE environments SET archived_at = now() WHERE id = 'env_gone'");
}

static struct mg_id issue(struct mg_sv workspace, struct mg_sv environment, char key[MG_API_KEY_TEXT])
{
    struct mg_id id;
    struct mg_err err = {0};
    if (mg_api_key_issue(pg, workspace, environment, MG_SV("laptop"), &id, key, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

static int list(struct mg_sv workspace, struct mg_api_key **ret)
{
    int n = -1;
    assert_int_equal(mg_api_key_list(pg, arena, workspace, ret, &n, NULL), MG_OK);
    return n;
}

static mg_rc look_up(const char *key, struct mg_principal *who)
{
    return mg_api_key_lookup(pg, mg_sv_of(key), who, NULL);
}

static void a_key_names_its_workspace_until_it_is_revoked(void **state)
{
    (void)state;
    char key[MG_API_KEY_TEXT];
    struct mg_principal who;
    struct mg_id id = issue(MG_SV("wrkspc_other"), NONE, key);
    assert_int_equal(strlen(key), 54);
    assert_memory_equal(key, "mango_", 6);
    assert_int_equal(strspn(key + 6, "0123456789abcdef"), 48);
    assert_int_equal(look_up(key, &who), MG_OK);
    assert_int_equal(who.kind, MG_BY_API_KEY);
    assert_string_equal(who.workspace.s, "wrkspc_other");
    assert_string_equal(who.key.s, id.s);

    assert_int_equal(mg_api_key_revoke(pg, DEFAULT, mg_id_sv(&id), NULL), MG_ENOTFOUND); /* another workspace's */
    assert_int_equal(mg_api_key_revoke(pg, MG_SV("wrkspc_other"), mg_id_sv(&id), NULL), MG_OK);
    assert_int_equal(look_up(key, &who), MG_EAUTH);
    assert_int_equal(mg_api_key_revoke(pg, NONE, mg_id_sv(&id), NULL), MG_OK);
    assert_int_equal(mg_api_key_revoke(pg, NONE, MG_SV("key_none"), NULL), MG_ENOTFOUND);
}

static void the_database_never_sees_a_key(void **state)
{
    (void)state;
    char key[MG_API_KEY_TEXT], sql[256];
    struct mg_res *r = NULL;
    issue(DEFAULT, NONE, key);
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM api_keys k WHERE k::text LIKE '%%%.20s%%'", key + 6);
    assert_int_equal(mg_pg_exec(pg, &(struct mg_stmt){"leak", sql}, NULL, 0, &r, NULL), MG_OK);
    assert_int_equal(mg_res_int(r, 0, 0), 0);
    mg_res_free(r);
    struct mg_api_key *keys = NULL;
    assert_int_equal(list(DEFAULT, &keys), 1);
    assert_true(mg_sv_eqz(keys[0].hint, key + 50));
    assert_true(mg_sv_eqz(keys[0].name, "laptop"));
    assert_true(keys[0].revoked_us == INT64_MIN);
}

static void an_environment_key_is_bound_to_an_environment_of_its_workspace(void **state)
{
    (void)state;
    char key[MG_API_KEY_TEXT];
    struct mg_principal who;
    struct mg_id id;
    struct mg_err err = {0};
    issue(DEFAULT, MG_SV("env_1"), key);
    assert_int_equal(look_up(key, &who), MG_OK);
    assert_int_equal(who.kind, MG_BY_ENVIRONMENT_KEY);
    assert_string_equal(who.environment.s, "env_1");
    assert_int_equal(mg_api_key_issue(pg, MG_SV("wrkspc_other"), MG_SV("env_1"), MG_SV("x"), &id, key, &err),
                     MG_ENOTFOUND);
    assert_int_equal(mg_api_key_issue(pg, DEFAULT, MG_SV("env_gone"), MG_SV("x"), &id, key, &err), MG_ENOTFOUND);
    assert_int_equal(mg_api_key_issue(pg, MG_SV("wrkspc_none"), NONE, MG_SV("x"), &id, key, &err), MG_ENOTFOUND);
    assert_int_equal(mg_api_key_issue(pg, DEFAULT, NONE, NONE, &id, key, &err), MG_EINVAL);
    struct mg_api_key *keys = NULL;
    assert_int_equal(list(NONE, &keys), 1);
    assert_int_equal(list(MG_SV("wrkspc_other"), &keys), 0);
}

static void malformed_and_unknown_secrets_are_one_answer(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " ", "mango_", "mango_000000000000000000000000000000000000000000000000", "a b", "\xc3\xa9", "x\x01"};
    struct mg_principal who;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct mg_err err = {0};
        assert_int_equal(mg_api_key_lookup(pg, mg_sv_of(bad[i]), &who, &err), MG_EAUTH);
        assert_string_equal(err.text, "invalid API key");
    }
    char huge[1000];
    memset(huge, 'x', sizeof(huge));
    assert_int_equal(mg_api_key_lookup(pg, mg_sv_n(huge, sizeof(huge)), &who, NULL), MG_EAUTH);
    assert_int_equal(mg_api_key_lookup(pg, mg_sv_n("a\0b", 3), &who, NULL), MG_EAUTH);
}

static void the_bootstrap_key_rotates_with_its_variable(void **state)
{
    (void)state;
    struct mg_principal who;
    struct mg_err err = {0};
    bool any = true;
    assert_int_equal(mg_api_key_any(pg, &any, NULL), MG_OK);
    assert_false(any);
    assert_int_equal(mg_api_key_bootstrap(pg, NONE, &err), MG_OK);
    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("first-secret-of-mine"), &err), MG_OK);
    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("first-secret-of-mine"), &err), MG_OK);
    assert_int_equal(look_up("first-secret-of-mine", &who), MG_OK);
    assert_string_equal(who.workspace.s, "wrkspc_default");
    assert_int_equal(mg_api_key_any(pg, &any, NULL), MG_OK);
    assert_true(any);

    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("second-secret-of-mine"), &err), MG_OK);
    assert_int_equal(look_up("first-secret-of-mine", &who), MG_EAUTH);
    assert_int_equal(look_up("second-secret-of-mine", &who), MG_OK);
    assert_int_equal(mg_api_key_bootstrap(pg, NONE, &err), MG_OK); /* unset: the key stays */
    assert_int_equal(look_up("second-secret-of-mine", &who), MG_OK);

    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("first-secret-of-mine"), &err), MG_ECONFIG); /* retired for good */
    assert_non_null(strstr(err.text, "revoked"));
    assert_int_equal(look_up("second-secret-of-mine", &who), MG_OK);
    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("has space"), &err), MG_ECONFIG);
    assert_null(strstr(err.text, "has space"));
    struct mg_api_key *keys = NULL;
    assert_int_equal(list(NONE, &keys), 2);
}

static void a_key_that_was_issued_may_become_the_bootstrap_key_and_survives_its_rotation(void **state)
{
    (void)state;
    char key[MG_API_KEY_TEXT];
    struct mg_principal who;
    issue(DEFAULT, NONE, key);
    assert_int_equal(mg_api_key_bootstrap(pg, mg_sv_of(key), NULL), MG_OK);
    assert_int_equal(mg_api_key_bootstrap(pg, MG_SV("another-secret-of-mine"), NULL), MG_OK);
    assert_int_equal(look_up(key, &who), MG_OK);
}

static void nodes_that_start_at_once_agree_on_one_bootstrap_key(void **state)
{
    (void)state;
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct mg_pg *mine = mg_pg_new(pgtest_conninfo(db));
            _exit(mg_api_key_bootstrap(mine, MG_SV("one-secret-of-all"), NULL) == MG_OK ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        assert_int_equal(status, 0);
    }
    struct mg_api_key *keys = NULL;
    assert_int_equal(list(NONE, &keys), 1);
    assert_true(keys[0].bootstrap);
}

static void the_cache_answers_without_the_database_and_forgets_at_once(void **state)
{
    (void)state;
    char key[MG_API_KEY_TEXT];
    struct mg_principal who;
    struct mg_id id = issue(DEFAULT, NONE, key);
    struct mg_key_cache *c = mg_key_cache_new();
    assert_int_equal(mg_key_cache_lookup(c, pg, mg_sv_of(key), &who, NULL), MG_OK);
    struct mg_pg *down = mg_pg_new("host=/nonexistent");
    assert_int_equal(mg_key_cache_lookup(c, down, mg_sv_of(key), &who, NULL), MG_OK);
    assert_string_equal(who.key.s, id.s);
    assert_int_equal(mg_key_cache_lookup(c, down, MG_SV("other"), &who, NULL), MG_EUNAVAIL);

    assert_int_equal(mg_api_key_revoke(pg, NONE, mg_id_sv(&id), NULL), MG_OK);
    mg_key_cache_forget(c, mg_id_sv(&id));
    assert_int_equal(mg_key_cache_lookup(c, pg, mg_sv_of(key), &who, NULL), MG_EAUTH);

    /* without the notification it is over by itself */
    char second[MG_API_KEY_TEXT];
    struct mg_id id2 = issue(DEFAULT, NONE, second);
    assert_int_equal(mg_key_cache_lookup(c, pg, mg_sv_of(second), &who, NULL), MG_OK);
    uint64_t start = mg_now_ns();
    assert_int_equal(mg_api_key_revoke(pg, NONE, mg_id_sv(&id2), NULL), MG_OK);
    while (mg_key_cache_lookup(c, pg, mg_sv_of(second), &who, NULL) == MG_OK)
        assert_true(mg_now_ns() - start < (uint64_t)2 * MG_API_KEY_CACHE_MS * 1000000);
    mg_pg_free(down);
    mg_key_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_names_its_workspace_until_it_is_revoked, setup, pgtest_down),
        cmocka_unit_test_setup_teardown(the_database_never_sees_a_key, setup, pgtest_down),
        cmocka_unit_test_setup_teardown(an_environment_key_is_bound_to_an_environment_of_its_workspace, setup,
                                        pgtest_down),
        cmocka_unit_test_setup_teardown(malformed_and_unknown_secrets_are_one_answer, setup, pgtest_down),
        cmocka_unit_test_setup_teardown(the_bootstrap_key_rotates_with_its_variable, setup, pgtest_down),
        cmocka_unit_test_setup_teardown(a_key_that_was_issued_may_become_the_bootstrap_key_and_survives_its_rotation,
                                        setup, pgtest_down),
        cmocka_unit_test_setup_teardown(nodes_that_start_at_once_agree_on_one_bootstrap_key, setup, pgtest_down),
        cmocka_unit_test_setup_teardown(the_cache_answers_without_the_database_and_forgets_at_once, setup, pgtest_down),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
