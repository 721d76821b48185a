/* The life of boxes of the backend `local` and who owns them. Field cases 52, 53 and 97. */
#include "unit.h"

#include <pthread.h>

#include "support/local-rig.h"

static const char other_label[] = "ffffffffffffffff0123456789abcdef";

static void create_is_idempotent_and_attach_finds_the_files_after_a_restart(void **state)
{
    (void)state;
    struct mg_err err;
    struct box again, other;
    assert_int_equal(box_try_write("kept.txt", "kept"), MANGO_OK);
    assert_int_equal(box_open(local_plugin, box_label, NULL, &again, &err), MANGO_OK);
    assert_string_equal(again.id.ptr, the_box.id.ptr);
    assert_string_equal(again.identity.ptr, the_box.identity.ptr);
    box_holds("kept.txt", "kept");
    /* what another process of the server does */
    struct mg_plugin *second = local_load(&err);
    assert_non_null(second);
    assert_int_equal(box_open(second, box_label, the_box.id.ptr, &other, &err), MANGO_OK);
    assert_string_equal(other.identity.ptr, the_box.identity.ptr);
    assert_string_equal(other.root.ptr, the_box.root.ptr);
    mg_plugin_close(second);
    box_close(&again);
    box_close(&other);
}

static void attach_refuses_foreign_labels_and_never_creates(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    assert_int_equal(box_open(local_plugin, other_label, the_box.id.ptr, &b, &err), MANGO_EDENIED);
    box_close(&b);
    assert_int_equal(box_open(local_plugin, other_label, "session-ffffffffffffffff0123456789abcdef", &b, &err),
                     MANGO_EGONE);
    box_close(&b);
    assert_int_equal(box_open(local_plugin, other_label, "../../etc", &b, &err), MANGO_EDENIED);
    box_close(&b);
}

static void destroy_is_idempotent_and_leaves_nothing(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    char path[PLUGIN_PATH_MAX * 2];
    box_says("mkdir -p a/b/c && touch a/b/c/f && chmod 000 a/b && ln -s / out && (sleep 4711.25 &) && echo ok", "ok\n");
    /* far deeper than a path may be long */
    box_says("python3 -c \"import os\nfor i in range(3000):\n  os.mkdir('dddd'); os.chdir('dddd')\n\" 2>&1; echo made",
             "made\n");
    assert_int_equal(box_destroy(), MANGO_OK);
    assert_int_equal(box_destroy(), MANGO_OK);
    assert_true(marked_becomes("4711.25", 0));
    snprintf(path, sizeof(path), "ls -A '%s' | grep -q . && exit 1; exit 0", local_base);
    assert_true(plugin_sh("%s", path));
    assert_int_equal(box_open(local_plugin, box_label, the_box.id.ptr, &b, &err), MANGO_EGONE);
    box_close(&b);
}

static void *destroyer(void *arg)
{
    (void)arg;
    (void)box_destroy();
    return NULL;
}

static void case_53_destroy_ends_a_command_that_runs(void **state)
{
    (void)state;
    pthread_t t;
    pthread_create(&t, NULL, destroyer, NULL);
    struct outcome o = box_run("trap '' TERM INT HUP; sleep 4712.25; sleep 4712.25", (struct how){0});
    pthread_join(t, NULL);
    assert_int_equal(o.status, MANGO_EGONE);
    assert_true(o.ms < QUICK_MS);
    assert_true(marked_becomes("4712.25", 0));
    outcome_done(&o);
}

static int32_t count_owned(void *ctx, const struct mango_owned *item)
{
    assert_int_equal(item->label.len, 32);
    (*(int *)ctx)++;
    return 0;
}

static void case_52_only_what_this_deployment_owns_is_listed(void **state)
{
    (void)state;
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    int n = 0;
    assert_int_equal(local_plugin->sandbox->list_owned(local_plugin->ctx, &call, text_sv(box_owner), count_owned, &n),
                     MANGO_OK);
    assert_int_equal(n, 1);
    n = 0;
    assert_int_equal(local_plugin->sandbox->list_owned(local_plugin->ctx, &call, text_sv(other_label), count_owned, &n),
                     MANGO_OK);
    assert_int_equal(n, 0);
}

static void case_97_an_unsafe_base_folder_is_refused(void **state)
{
    (void)state;
    struct mg_err err;
    char good[sizeof(local_base)];
    snprintf(good, sizeof(good), "%s", local_base);
    assert_true(plugin_sh("cd '%s' && mkdir open && chmod 0777 open && ln -s /tmp link && mkdir -m 0700 target",
                          local_plugins));
    snprintf(local_base, sizeof(local_base), "%s/open", local_plugins);
    assert_null(local_load(&err));
    assert_non_null(strstr(err.text, "mode 0777"));
    snprintf(local_base, sizeof(local_base), "%s/link", local_plugins);
    assert_null(local_load(&err));
    assert_non_null(strstr(err.text, "symbolic link"));
    snprintf(local_base, sizeof(local_base), "%s/open/below", local_plugins);
    assert_null(local_load(&err));
    assert_non_null(strstr(err.text, "above"));
    snprintf(local_base, sizeof(local_base), "%s/with space", local_plugins);
    struct mg_plugin *p = local_load(&err);
    assert_non_null(p);
    mg_plugin_close(p);
    snprintf(local_base, sizeof(local_base), "%s", good);
}

static void staged_files_of_a_crash_are_removed_at_attach(void **state)
{
    (void)state;
    struct mg_err err;
    struct box b;
    assert_true(plugin_sh("touch '%s/%s/staging/.mango-write-4194303-left'", local_base, the_box.id.ptr));
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    assert_int_equal(local_plugin->sandbox->detach(local_plugin->ctx, &call, box_id()), MANGO_OK);
    assert_int_equal(box_open(local_plugin, box_label, the_box.id.ptr, &b, &err), MANGO_OK);
    assert_true(plugin_sh("test -z \"$(ls -A '%s/%s/staging')\"", local_base, the_box.id.ptr));
    box_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX_TEST(create_is_idempotent_and_attach_finds_the_files_after_a_restart),
        BOX_TEST(attach_refuses_foreign_labels_and_never_creates),
        BOX_TEST(destroy_is_idempotent_and_leaves_nothing),
        BOX_TEST(case_53_destroy_ends_a_command_that_runs),
        BOX_TEST(case_52_only_what_this_deployment_owns_is_listed),
        cmocka_unit_test(case_97_an_unsafe_base_folder_is_refused),
        BOX_TEST(staged_files_of_a_crash_are_removed_at_attach),
    };
    return cmocka_run_group_tests(tests, local_group_up, local_group_down);
}
