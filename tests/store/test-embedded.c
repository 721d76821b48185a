/* The private PostgreSQL and the state folder (field case 97). */
#include <fcntl.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/child.h"
#include "store/embedded.h"
#include "store/pg.h"

static char top[64]; /* of all tests: a folder with a space in its name lies in it */

static char *path_in(const char *name)
{
    char *p = NULL;
    assert_true(asprintf(&p, "%s/%s", top, name) > 0);
    return p;
}

static int setup(void **state)
{
    (void)state;
    snprintf(top, sizeof(top), "/tmp/mango-embedded.XXXXXX");
    return mkdtemp(top) && chmod(top, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
    return system(cmd);
}

static struct mg_state_dir open_dir(const char *path)
{
    struct mg_state_dir d = {0};
    struct mg_err err = {0};
    if (mg_state_dir_open(path, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

static void refused(const char *path, mg_rc rc, const char *part)
{
    struct mg_state_dir d = {0};
    struct mg_err err = {0};
    assert_int_equal(mg_state_dir_open(path, &d, &err), rc);
    if (!strstr(err.text, part))
        fail_msg("'%s' is not in '%s'", part, err.text);
    assert_null(strchr(err.text, '\n'));
}

static int64_t select_int(const char *conninfo, const char *sql)
{
    struct mg_pg *pg = mg_pg_new(conninfo);
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    if (mg_pg_exec(pg, &(struct mg_stmt){"t", sql}, NULL, 0, &r, &err) < 0)
        fail_msg("%s (%s)", err.text, mg_pg_diag(pg));
    int64_t n = mg_res_int(r, 0, 0);
    mg_res_free(r);
    mg_pg_free(pg);
    return n;
}

static struct mg_embedded *start(const struct mg_state_dir *d)
{
    struct mg_embedded *e = NULL;
    struct mg_err err = {0};
    if (mg_embedded_start(d, NULL, &e, &err) < 0)
        fail_msg("%s", err.text);
    return e;
}

static void stop(struct mg_embedded *e)
{
    struct mg_err err = {0};
    assert_int_equal(mg_embedded_stop(e, &err), MG_OK);
    mg_embedded_free(e);
}

static void a_cluster_is_made_stopped_and_started_again_in_a_folder_with_spaces(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("state with 'spaces', commas");
    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = start(&d);
    assert_false(mg_embedded_adopted(e));
    assert_int_equal(select_int(mg_embedded_conninfo(e),
                                "SELECT count(*) FROM pg_settings WHERE name = 'listen_addresses' AND setting = ''"),
                     1);
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT count(*) FROM pg_database WHERE datname = 'mango' AND "
                                                         "pg_encoding_to_char(encoding) = 'UTF8' AND datcollate = 'C'"),
                     1);
    if (geteuid() == 0) {
        struct stat st;
        mg_autofree char *pg = path_in("state with 'spaces', commas/pg");
        assert_int_equal(stat(pg, &st), 0);
        assert_true(st.st_uid != 0);
        assert_int_equal(st.st_mode & 0777, 0700);
    }
    char *found = NULL;
    assert_int_equal(mg_embedded_locate(path, &found, NULL), MG_OK);
    assert_string_equal(found, mg_embedded_conninfo(e));
    free(found);
    pid_t pid = (pid_t)mg_embedded_pid(e);
    stop(e);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(mg_embedded_locate(path, &found, NULL), MG_EUNAVAIL);

    uint64_t before = mg_now_ns();
    e = start(&d);
    print_message("restart to ready: %d ms\n", (int)((mg_now_ns() - before) / 1000000));
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);
    stop(e);
    mg_state_dir_close(&d);
}

static void a_postmaster_that_a_killed_server_left_is_adopted(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("adopt");
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) { /* a mangod that is killed in the middle of its work */
        struct mg_state_dir d = {0};
        struct mg_embedded *e = NULL;
        char ok = mg_state_dir_open(path, &d, NULL) == 0 && mg_embedded_start(&d, NULL, &e, NULL) == 0 ? 'y' : 'n';
        (void)!write(ends[1], &ok, 1);
        raise(SIGKILL);
    }
    char ok = 0;
    assert_int_equal(read(ends[0], &ok, 1), 1);
    assert_int_equal(ok, 'y');
    assert_int_equal(waitpid(child, NULL, 0), child);

    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = start(&d);
    assert_true(mg_embedded_adopted(e));
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);

    /* killed as a whole, as a control group is: its file stays, and the number in it may be anybody's by now */
    pid_t old = (pid_t)mg_embedded_pid(e);
    assert_int_equal(kill(old, SIGKILL), 0);
    assert_true(mg_process_ends(old, 10000));
    mg_autofree char *pidfile = path_in("adopt/pg/data/postmaster.pid");
    struct mg_err err = {0};
    if (mg_embedded_revive(e, &err) < 0)
        fail_msg("%s", err.text);
    assert_false(mg_embedded_adopted(e));
    assert_int_not_equal(mg_embedded_pid(e), old);
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);
    stop(e);

    int fd = open(pidfile, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "%d\n/nowhere\n1\n5432\n/nowhere\n\n1 2\nready\n", (int)getpid()) > 0);
    if (geteuid() == 0)
        assert_int_equal(fchown(fd, getpwnam("postgres")->pw_uid, (gid_t)-1), 0);
    close(fd);
    e = start(&d);
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);
    stop(e);
    mg_state_dir_close(&d);
}

static void an_initdb_that_was_killed_leaves_nothing_that_stops_the_next_start(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("half");
    mg_autofree char *cmd = NULL;
    const char *as = geteuid() == 0 ? "setpriv --reuid=postgres --regid=postgres --clear-groups" : "";
    assert_true(asprintf(&cmd,
                         "mkdir -m 711 '%s' && mkdir -m 700 '%s/pg' && ( [ -z '%s' ] || chown postgres '%s/pg' ) && "
                         "%s mkdir -p '%s/pg/data.new/base' && %s touch '%s/pg/data.new/PG_VERSION'",
                         path, path, as, path, as, path, as, path) > 0);
    assert_int_equal(system(cmd), 0);
    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = start(&d);
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);
    stop(e);
    mg_state_dir_close(&d);
}

static void a_path_too_long_for_a_socket_gets_a_short_one(void **state)
{
    (void)state;
    char name[120];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    mg_autofree char *path = path_in(name);
    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = start(&d);
    assert_null(strstr(mg_embedded_conninfo(e), "xxxx"));
    assert_int_equal(select_int(mg_embedded_conninfo(e), "SELECT 7"), 7);
    stop(e);
    mg_state_dir_close(&d);
    (void)!system("rmdir /run/mango-*-* /tmp/mango-[0-9]*-* 2>/dev/null");
}

static void a_missing_server_program_is_named_with_what_to_install(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("nobin");
    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = NULL;
    struct mg_err err = {0};
    assert_int_equal(mg_embedded_start(&d, "/nowhere", &e, &err), MG_ECONFIG);
    assert_non_null(strstr(err.text, "MANGO_PG_BINDIR"));
    mg_state_dir_close(&d);
}

static void a_cluster_of_a_version_that_is_not_installed_is_refused(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("old");
    mg_autofree char *cmd = NULL;
    assert_true(asprintf(&cmd,
                         "mkdir -m 711 '%s' && mkdir -p -m 700 '%s/pg' && mkdir '%s/pg/data' && echo 11 > "
                         "'%s/pg/data/PG_VERSION' && "
                         "( [ $(id -u) != 0 ] || chown -R postgres '%s/pg' )",
                         path, path, path, path, path) > 0);
    assert_int_equal(system(cmd), 0);
    struct mg_state_dir d = open_dir(path);
    struct mg_embedded *e = NULL;
    struct mg_err err = {0};
    assert_int_equal(mg_embedded_start(&d, NULL, &e, &err), MG_ECONFIG);
    assert_non_null(strstr(err.text, "made by PostgreSQL 11"));
    mg_state_dir_close(&d);
}

static void case_97_links_foreign_owners_and_open_parents_are_refused(void **state)
{
    (void)state;
    mg_autofree char *real = path_in("real"), *link = path_in("link"), *open_top = path_in("open"),
                     *in_open = path_in("open/state");
    mg_autofree char *writable = path_in("writable"), *file = path_in("file"), *missing = path_in("no/such"),
                     *through = path_in("link/state");
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, link), 0);
    refused(link, MG_ECONFIG, "symbolic link");
    assert_int_equal(mkdir(open_top, 0777), 0);
    assert_int_equal(chmod(open_top, 0777), 0);
    refused(in_open, MG_ECONFIG, "everybody may write");
    assert_int_equal(chmod(open_top, 01777), 0);
    struct mg_state_dir d = open_dir(in_open); /* sticky: like /tmp */
    mg_state_dir_close(&d);
    assert_int_equal(mkdir(writable, 0700), 0);
    assert_int_equal(chmod(writable, 0770), 0);
    refused(writable, MG_ECONFIG, "chmod go-w");
    assert_int_equal(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
    refused(file, MG_ECONFIG, "not a folder");
    refused(missing, MG_ECONFIG, "create it first");
    refused("", MG_ECONFIG, "MANGO_STATE_DIR");
    if (geteuid() == 0) {
        uid_t other = getpwnam("nobody")->pw_uid;
        assert_int_equal(chown(real, other, (gid_t)-1), 0);
        refused(real, MG_ECONFIG, "belongs to user");
        assert_int_equal(chown(real, 0, (gid_t)-1), 0);
        d = open_dir(through); /* by a link of our own */
        assert_string_equal(strrchr(d.path, '/'), "/state");
        assert_null(strstr(d.path, "link"));
        mg_state_dir_close(&d);
        assert_int_equal(lchown(link, other, (gid_t)-1), 0);
        refused(through, MG_ECONFIG, "of another user");
    }
}

static void case_97_a_pid_file_that_is_a_link_is_neither_followed_nor_truncated(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("pid"), *victim = path_in("victim"), *pidfile = path_in("pid/mangod.pid");
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(victim, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "precious", 8), 8);
    close(fd);
    assert_int_equal(symlink(victim, pidfile), 0);
    refused(path, MG_ECONFIG, "mangod.pid in it is a symbolic link");
    assert_int_equal(unlink(pidfile), 0);
    assert_int_equal(link(victim, pidfile), 0);
    refused(path, MG_ECONFIG, "not a plain file");
    struct stat st;
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, 8);
}

static void case_97_a_second_server_on_the_folder_is_told_who_has_it(void **state)
{
    (void)state;
    mg_autofree char *path = path_in("two");
    struct mg_state_dir d = open_dir(path);
    struct mg_state_dir second = {0};
    struct mg_err err = {0};
    char pid[32];
    snprintf(pid, sizeof(pid), "process %d", (int)getpid());
    assert_int_equal(mg_state_dir_open(path, &second, &err), MG_ECONFLICT);
    assert_string_equal(err.code, "state_in_use");
    assert_non_null(strstr(err.text, pid));
    mg_state_dir_close(&d);
    d = open_dir(path);
    mg_state_dir_close(&d);
}

static void case_97_a_read_only_or_full_disk_is_named(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    mg_autofree char *mount = path_in("mnt"), *in = path_in("mnt/state"), *cmd = NULL;
    assert_true(asprintf(&cmd, "mkdir -p '%s' && mount -t tmpfs -o size=64k none '%s' 2>/dev/null", mount, mount) > 0);
    if (system(cmd) != 0) {
        print_message("no right to mount a file system here\n");
        skip();
    }
    char full[160];
    snprintf(full, sizeof(full), "mkdir -m 700 '%s' && (cat /dev/zero > '%s/fill' 2>/dev/null; true)", in, mount);
    assert_int_equal(system(full), 0);
    refused(in, MG_ECONFIG, "No space left");
    snprintf(full, sizeof(full), "rm '%s/fill' && mount -o remount,ro '%s'", mount, mount);
    int k = system(full);
    if (k == 0)
        refused(in, MG_ECONFIG, "Read-only file system");
    snprintf(full, sizeof(full), "umount '%s'", mount);
    assert_int_equal(system(full), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_97_links_foreign_owners_and_open_parents_are_refused),
        cmocka_unit_test(case_97_a_pid_file_that_is_a_link_is_neither_followed_nor_truncated),
        cmocka_unit_test(case_97_a_second_server_on_the_folder_is_told_who_has_it),
        cmocka_unit_test(case_97_a_read_only_or_full_disk_is_named),
        cmocka_unit_test(a_missing_server_program_is_named_with_what_to_install),
        cmocka_unit_test(a_cluster_of_a_version_that_is_not_installed_is_refused),
        cmocka_unit_test(a_cluster_is_made_stopped_and_started_again_in_a_folder_with_spaces),
        cmocka_unit_test(a_postmaster_that_a_killed_server_left_is_adopted),
        cmocka_unit_test(an_initdb_that_was_killed_leaves_nothing_that_stops_the_next_start),
        cmocka_unit_test(a_path_too_long_for_a_socket_gets_a_short_one),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
