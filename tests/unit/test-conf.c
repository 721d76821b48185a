#include "unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "conf/conf.h"

/* A file with the text that is gone when the test ends. */
struct temp_file {
    char path[64];
};

static void temp_file_cleanup(struct temp_file *f)
{
    if (f->path[0])
        (void)unlink(f->path);
}

static struct temp_file write_file(const char *text)
{
    struct temp_file f = {"/tmp/mango-conf-XXXXXX"};
    int fd = mkstemp(f.path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    return f;
}

static mg_rc load(const char *arg, const char *env, const char *file_text, struct mg_conf **ret, struct mg_err *err)
{
    const char *args[] = {arg, NULL}, *envs[] = {env, NULL};
    __attribute__((cleanup(temp_file_cleanup))) struct temp_file f = write_file(file_text ? file_text : "");
    struct mg_conf_source src = {.args = args, .env = envs, .file = file_text ? f.path : NULL};

    return mg_conf_load(&src, ret, err);
}

static void the_table_is_complete_and_consistent(void **state)
{
    (void)state;
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        const struct mg_opt_def *d = &mg_opt_table[o];
        char env[64] = "MANGO_";
        assert_non_null(d->name);
        assert_non_null(d->help);
        assert_non_null(d->fallback);
        for (size_t i = 0; i <= strlen(d->name); i++)
            env[6 + i] = d->name[i] >= 'a' && d->name[i] <= 'z' ? (char)(d->name[i] - 32) : d->name[i];
        assert_string_equal(d->env, env);
        assert_int_equal(d->type == MG_CONF_CHOICE, d->choices != NULL);
        if (d->type == MG_CONF_INT || d->type == MG_CONF_DURATION)
            assert_true(d->min < d->max);
        for (int p = 0; p < o; p++)
            assert_string_not_equal(d->name, mg_opt_table[p].name);
    }
}

static void defaults_hold_where_nothing_is_set(void **state)
{
    mg_auto(conf) struct mg_conf *c = NULL;

    (void)state;
    assert_int_equal(load(NULL, NULL, NULL, &c, NULL), MG_OK);
    assert_string_equal(mg_conf_str(c, MG_OPT_LISTEN), "127.0.0.1:8080");
    assert_string_equal(mg_conf_str(c, MG_OPT_STATE_DIR), "/var/lib/mango");
    assert_string_equal(mg_conf_str(c, MG_OPT_DATABASE_URL), "");
    assert_null(mg_conf_strn(c, MG_OPT_DATABASE_URL));
    assert_string_equal(mg_conf_str(c, MG_OPT_DEFAULT_ENVIRONMENT), "self_hosted");
    assert_int_equal(mg_conf_int(c, MG_OPT_REQUEST_THREADS), 16);
    assert_int_equal(mg_conf_int(c, MG_OPT_TOOL_THREADS), 1024);
    assert_int_equal(mg_conf_ms(c, MG_OPT_NODE_TTL), 15000);
    assert_false(mg_conf_bool(c, MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX));
    assert_false(mg_conf_is_set(c, MG_OPT_LISTEN));
    assert_string_equal(mg_conf_origin(c, MG_OPT_LISTEN), "default");
    assert_null(mg_conf_list(c, MG_OPT_ORIGINS)[0]);
}

static void the_command_line_wins_over_environment_file_and_default(void **state)
{
    static const char file[] = "listen = \"file:1\"; log_level = \"warn\"; node_ttl = \"20s\";";
    const char *args[] = {"--listen=arg:1", "--metrics-public", NULL};
    const char *envs[] = {"MANGO_LISTEN=env:1", "MANGO_LOG_LEVEL=error", "MANGO_NODE_TTL=", NULL};
    __attribute__((cleanup(temp_file_cleanup))) struct temp_file f = write_file(file);
    mg_auto(conf) struct mg_conf *c = NULL;
    char origin[80];

    (void)state;
    assert_int_equal(mg_conf_load(&(struct mg_conf_source){.args = args, .env = envs, .file = f.path}, &c, NULL),
                     MG_OK);
    assert_string_equal(mg_conf_str(c, MG_OPT_LISTEN), "arg:1");
    assert_string_equal(mg_conf_origin(c, MG_OPT_LISTEN), "--listen");
    assert_string_equal(mg_conf_str(c, MG_OPT_LOG_LEVEL), "error");
    assert_string_equal(mg_conf_origin(c, MG_OPT_LOG_LEVEL), "MANGO_LOG_LEVEL");
    /* An empty variable is as good as none. */
    assert_int_equal(mg_conf_ms(c, MG_OPT_NODE_TTL), 20000);
    (void)snprintf(origin, sizeof(origin), "%s:1: node_ttl", f.path);
    assert_string_equal(mg_conf_origin(c, MG_OPT_NODE_TTL), origin);
    assert_true(mg_conf_bool(c, MG_OPT_METRICS_PUBLIC));
    assert_true(mg_conf_is_set(c, MG_OPT_METRICS_PUBLIC));
}

static void wrong_values_are_refused_by_name(void **state)
{
    static const struct {
        const char *arg, *env, *file, *message;
    } rows[] = {
        {NULL, "MANGO_NODE_TTL=15", NULL,
         "MANGO_NODE_TTL: '15' is not a duration; write a number and a unit: 500ms, 15s, 5m, 2h"},
        {NULL, "MANGO_NODE_TTL=1s", NULL, "MANGO_NODE_TTL: '1s' is out of range; it may be 2s to 5m"},
        {NULL, "MANGO_NODE_TTL=301s", NULL, "is out of range"},
        {NULL, "MANGO_NODE_TTL=1.5m", NULL, "is not a duration"},
        {NULL, "MANGO_NODE_TTL=s", NULL, "is not a duration"},
        {NULL, "MANGO_NODE_TTL=9223372036854775807h", NULL, "is not a duration"},
        {NULL, "MANGO_NODE_TTL=-5s", NULL, "is not a duration"},
        {NULL, "MANGO_REQUEST_THREADS=33", NULL, "MANGO_REQUEST_THREADS: '33' is out of range; it may be 1 to 32"},
        {NULL, "MANGO_REQUEST_THREADS=0", NULL, "is out of range"},
        {NULL, "MANGO_REQUEST_THREADS=4x", NULL, "is not a whole number"},
        {NULL, "MANGO_REQUEST_THREADS=99999999999999999999", NULL, "is not a whole number"},
        {NULL, "MANGO_METRICS_PUBLIC=maybe", NULL, "MANGO_METRICS_PUBLIC: 'maybe' is neither true nor false"},
        {NULL, "MANGO_DEFAULT_ENVIRONMENT=moon", NULL, "'moon' is none of: self_hosted cloud"},
        {NULL, "MANGO_DEFAULT_ENVIRONMENT=self_hosted cloud", NULL, "is none of"},
        {NULL, "MANGO_LISTEN=a\nb", NULL, "MANGO_LISTEN: 'a?b' holds a control character"},
        {"--listn=x", NULL, NULL, "there is no option --listn; did you mean listen?"},
        {"--zzzzzzzzzzzz=x", NULL, NULL, "there is no option --zzzzzzzzzzzz"},
        {"--node-ttl=1", NULL, NULL, "--node-ttl: '1' is not a duration"},
        {"--listen", NULL, NULL, "--listen needs a value: --listen=VALUE"},
        {"listen=x", NULL, NULL, "'listen=x' is not an option"},
        {NULL, NULL, "\n\nlisen = \"x\";", ":3: there is no option 'lisen'; did you mean listen?"},
        {NULL, NULL, "model: { base_ulr = \"x\"; };",
         ":1: there is no option 'model_base_ulr'; did you mean model_base_url?"},
        {NULL, NULL, "listen = 8080;", ":1: listen needs a text in double quotes"},
        {NULL, NULL, "listen = \"a\";\nlisten = \"b\";", ":2: duplicate setting name"},
        {NULL, NULL, "node_ttl = \"5s\";\nnode: { ttl = \"5s\"; };", ":2: node_ttl is given twice"},
        {NULL, NULL, "listen = ", ":1: syntax error"},
        {NULL, NULL, "node_ttl = 15;", ":1: node_ttl: '15' is not a duration"},
        {NULL, NULL, "a = 1;\n@include \"/etc/passwd\"", ":2: @include is not supported"},
        {NULL, NULL, "plugins: { local = 1; };", "plugins.local needs a section"},
        {NULL, NULL, "plugins: { local: { x: { y = 1; }; }; };",
         "plugins.local.x needs a text, a number, true or false"},
        {"--tls-cert=/c.pem", NULL, NULL, "tls_cert is set without tls_key; TLS needs both"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mg_conf *c = NULL;
        struct mg_err err = {0};
        if (load(rows[i].arg, rows[i].env, rows[i].file, &c, &err) != MG_ECONFIG)
            fail_msg("row %zu (%s) was accepted", i, rows[i].message);
        assert_null(c);
        assert_contains(err.text, rows[i].message);
    }
}

static void a_secret_is_in_no_message_and_no_print(void **state)
{
    mg_auto(conf) struct mg_conf *c = NULL;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1 << 20);
    struct mg_err err = {0};

    (void)state;
    assert_int_equal(load(NULL, "MANGO_MODEL_API_KEY=canary\n", NULL, &c, &err), MG_ECONFIG);
    assert_null(strstr(err.text, "canary"));
    assert_contains(err.text, "MANGO_MODEL_API_KEY: the value (not shown) holds a control character");
    assert_int_equal(load("--database-url=postgresql://u:canary@h/d", "MANGO_API_KEY=canary",
                          "model_api_key = \"canary\"; plugins: { e2b: { api_key = \"canary\"; }; };", &c, &err),
                     MG_OK);
    assert_int_equal(mg_conf_print(c, &out), MG_OK);
    assert_null(strstr(out.ptr, "canary"));
    assert_contains(out.ptr, "api_key = \"***\"  # MANGO_API_KEY\n");
    assert_contains(out.ptr, "database_url = \"***\"  # --database-url\n");
    assert_contains(out.ptr, "listen = \"127.0.0.1:8080\"  # default\n");
    assert_string_equal(mg_conf_str(c, MG_OPT_API_KEY), "canary");
}

static void groups_lists_and_spellings(void **state)
{
    mg_auto(conf) struct mg_conf *c = NULL;
    struct mg_err err = {0};

    (void)state;
    if (load("--keepalive=2000ms", "MANGO_METRICS_PUBLIC=Yes",
             "allow_unsafe: { local_sandbox = true; }; node: { ttl = \"1m\"; };\n"
             "origins = [ \"https://a\", \"https://b\" ];\n"
             "request_threads = 8; tool_threads = \"16\"; // a comment\n",
             &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(mg_conf_bool(c, MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX));
    assert_int_equal(mg_conf_ms(c, MG_OPT_NODE_TTL), 60000);
    assert_string_equal(mg_conf_str(c, MG_OPT_KEEPALIVE), "2s");
    assert_string_equal(mg_conf_str(c, MG_OPT_METRICS_PUBLIC), "true");
    assert_int_equal(mg_conf_int(c, MG_OPT_REQUEST_THREADS), 8);
    assert_int_equal(mg_conf_int(c, MG_OPT_TOOL_THREADS), 16);
    assert_string_equal(mg_conf_list(c, MG_OPT_ORIGINS)[0], "https://a");
    assert_string_equal(mg_conf_list(c, MG_OPT_ORIGINS)[1], "https://b");
    assert_null(mg_conf_list(c, MG_OPT_ORIGINS)[2]);
}

static void plugins_get_their_own_settings_and_nothing_else(void **state)
{
    static const char *const envs[] = {"E2B_API_KEY=from-env",
                                       "MANGO_LOCAL_BASE_DIR=/env",
                                       "MANGO_LOCAL_EXTRA=1",
                                       "MANGO_API_KEY=server",
                                       "PGPASSWORD=server",
                                       "MANGO_LOCAL_EMPTY=",
                                       NULL};
    static const char file[] = "plugins: {\n"
                               "  local: { base_dir = \"/file\"; quota = 5; keep = true; name = \"a \\\"b\\\"\"; };\n"
                               "  e2b: { api_key = \"from-file\"; };\n"
                               "  runloop: { api_key = \"rl\"; };\n"
                               "  my-box: { MY_BOX_TOKEN = \"t\"; };\n"
                               "};\n";
    __attribute__((cleanup(temp_file_cleanup))) struct temp_file f = write_file(file);
    mg_auto(conf) struct mg_conf *c = NULL;
    mg_auto(buf) struct mg_buf json = MG_BUF_INIT(1 << 16);
    struct mg_err err = {0};

    (void)state;
    if (mg_conf_load(&(struct mg_conf_source){.env = envs, .file = f.path}, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(mg_conf_plugin(c, "e2b", "E2B_API_KEY"), "from-env");
    assert_string_equal(mg_conf_plugin(c, "runloop", "RUNLOOP_API_KEY"), "rl");
    assert_string_equal(mg_conf_plugin(c, "my-box", "MY_BOX_TOKEN"), "t");
    assert_string_equal(mg_conf_plugin(c, "local", "base_dir"), "/env");
    assert_string_equal(mg_conf_plugin(c, "local", "quota"), "5");
    assert_null(mg_conf_plugin(c, "local", "none"));
    assert_null(mg_conf_plugin(c, "local", "empty"));
    assert_null(mg_conf_plugin(c, "local", "MANGO_API_KEY"));
    assert_null(mg_conf_plugin(c, "local", "PGPASSWORD"));
    assert_null(mg_conf_plugin(c, "api", "key"));
    assert_int_equal(mg_conf_plugin_json(c, "local", &json), MG_OK);
    assert_sv_equal(mg_buf_view(&json),
                    "{\"base_dir\":\"/env\",\"quota\":5,\"keep\":true,\"name\":\"a \\\"b\\\"\",\"extra\":\"1\"}");
    mg_buf_reset(&json);
    assert_int_equal(mg_conf_plugin_json(c, "docker", &json), MG_OK);
    assert_sv_equal(mg_buf_view(&json), "{}");
}

/* Every line of the sample that sets something, with the # taken away, is the default. */
static void the_sample_is_a_valid_file_of_defaults(void **state)
{
    mg_auto(buf) struct mg_buf sample = MG_BUF_INIT(1 << 20);
    mg_auto(buf) struct mg_buf live = MG_BUF_INIT(1 << 20);
    mg_auto(conf) struct mg_conf *plain = NULL;
    mg_auto(conf) struct mg_conf *c = NULL;
    struct mg_err err = {0};

    (void)state;
    assert_int_equal(mg_conf_sample(&sample), MG_OK);
    assert_int_equal(load(NULL, NULL, sample.ptr, &plain, &err), MG_OK);
    struct mg_sv rest = mg_buf_view(&sample);
    int set = 0;
    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        assert_true(line.len <= 100);
        bool off = line.len > 1 && line.ptr[0] == '#' && line.ptr[1] != ' ';
        set += off && mg_sv_find(line, '=') < line.len && line.ptr[1] != '\0';
        (void)mg_buf_printf(&live, "%.*s\n", MG_SV_ARG(off ? mg_sv_from(line, 1) : line));
    }
    assert_true(set >= MG_OPT_COUNT);
    if (load(NULL, NULL, live.ptr, &c, &err) < 0)
        fail_msg("%s\n%s", err.text, live.ptr);
    for (int o = 0; o < MG_OPT_COUNT; o++) {
        assert_string_equal(mg_conf_str(c, (enum mg_opt)o), mg_conf_str(plain, (enum mg_opt)o));
        assert_contains(sample.ptr, mg_opt_table[o].env);
    }
}

/* conf/mango.conf is what mangod --print-config-sample prints. */
static void the_installed_sample_is_the_printed_one(void **state)
{
    mg_auto(buf) struct mg_buf sample = MG_BUF_INIT(1 << 20);
    static char text[1 << 20];
    const char *top = getenv("MANGO_TEST_SRCDIR");
    char path[4096];

    (void)state;
    if (!top)
        skip();
    (void)snprintf(path, sizeof(path), "%s/conf/mango.conf", top);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    assert_int_equal(mg_conf_sample(&sample), MG_OK);
    text[n] = '\0';
    assert_string_equal(text, sample.ptr);
}

static void help_names_every_option(void **state)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1 << 20);

    (void)state;
    assert_int_equal(mg_conf_help(&out), MG_OK);
    assert_contains(out.ptr, "--node-ttl=2s to 5m");
    for (int o = 0; o < MG_OPT_COUNT; o++)
        assert_contains(out.ptr, mg_opt_table[o].help);
}

static void a_missing_file_matters_only_when_it_was_asked_for(void **state)
{
    struct mg_conf *c = NULL;
    struct mg_err err = {0};

    (void)state;
    assert_int_equal(mg_conf_load(&(struct mg_conf_source){.file = "/nowhere/mango.conf"}, &c, &err), MG_ECONFIG);
    assert_string_equal(err.text, "/nowhere/mango.conf: No such file or directory");
    assert_int_equal(
        mg_conf_load(&(struct mg_conf_source){.file = "/nowhere/mango.conf", .file_may_be_missing = true}, &c, &err),
        MG_OK);
    mg_conf_free(c);
    c = NULL;
    assert_int_equal(mg_conf_load(&(struct mg_conf_source){.file = "/"}, &c, &err), MG_ECONFIG);
    mg_conf_free(NULL);
}

/* What the kernel shows of this process. */
static size_t read_proc(const char *path, char *out, size_t max)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, max, f) : 0;

    if (f)
        (void)fclose(f);
    return n;
}

/* Runs in a process of its own (main starts it), since it changes the environment of the whole process. */
static int hide_and_look(char **argv)
{
    static char text[1 << 20];
    size_t n;

    mg_conf_hide(argv);
    n = read_proc("/proc/self/environ", text, sizeof(text));
    if (memmem(text, n, "canary", 6))
        return 1;
    n = read_proc("/proc/self/cmdline", text, sizeof(text));
    if (memmem(text, n, "canary", 6) || !memmem(text, n, "--listen=shown", 14))
        return 2;
    if (getenv("MANGO_API_KEY") || !getenv("OTHER") || strcmp(getenv("OTHER"), "canary") != 0)
        return 3;
    return 0;
}

static void case_69_secrets_leave_the_process_memory_that_others_read(void **state)
{
    char self[512], command[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    (void)state;
    assert_true(n > 0);
    self[n] = '\0';
    (void)snprintf(command, sizeof(command),
                   "OTHER=canary MANGO_API_KEY=canary '%s' --hide --model-api-key=canary --listen=shown", self);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete_and_consistent),
        cmocka_unit_test(defaults_hold_where_nothing_is_set),
        cmocka_unit_test(the_command_line_wins_over_environment_file_and_default),
        cmocka_unit_test(wrong_values_are_refused_by_name),
        cmocka_unit_test(a_secret_is_in_no_message_and_no_print),
        cmocka_unit_test(groups_lists_and_spellings),
        cmocka_unit_test(plugins_get_their_own_settings_and_nothing_else),
        cmocka_unit_test(the_sample_is_a_valid_file_of_defaults),
        cmocka_unit_test(the_installed_sample_is_the_printed_one),
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(a_missing_file_matters_only_when_it_was_asked_for),
        cmocka_unit_test(case_69_secrets_leave_the_process_memory_that_others_read),
    };

    return argc > 1 && strcmp(argv[1], "--hide") == 0 ? hide_and_look(argv) : RUN(tests);
}
