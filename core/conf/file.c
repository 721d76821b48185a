/* The file mango.conf, in libconfig's syntax. It is read into memory first: libconfig is not given a path, so that it
 * reads nothing else, and not more than the limit. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libconfig.h>
#include <stdio.h>

#include "base/mem.h"
#include "conf/internal.h"

enum { FILE_MAX = 1024 * 1024 /* bytes; a hand-written file has a few thousand */ };

enum { KEY_MAX = 64, ORIGIN_MAX = 512 };

struct reading {
    struct mg_conf *conf;
    const char *name; /* of the file */
    struct mg_err *err;
    struct conf_plugin_value **tail;
    bool seen[MG_OPT_COUNT];
};

static void origin_of(const struct reading *r, const config_setting_t *s, char out[ORIGIN_MAX])
{
    (void)snprintf(out, ORIGIN_MAX, "%s:%u", r->name, config_setting_source_line(s));
}

/* The value as text. Lists of strings are joined by commas. */
static bool value_text(const config_setting_t *s, struct mg_buf *out, bool *ret_quoted)
{
    *ret_quoted = false;
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_INT:
        return mg_buf_printf(out, "%d", config_setting_get_int(s)) == MG_OK;
    case CONFIG_TYPE_INT64:
        return mg_buf_printf(out, "%" PRId64, (int64_t)config_setting_get_int64(s)) == MG_OK;
    case CONFIG_TYPE_FLOAT:
        return mg_buf_printf(out, "%.17g", config_setting_get_float(s)) == MG_OK;
    case CONFIG_TYPE_BOOL:
        return mg_buf_str(out, config_setting_get_bool(s) ? "true" : "false") == MG_OK;
    case CONFIG_TYPE_STRING:
        *ret_quoted = true;
        return mg_buf_str(out, config_setting_get_string(s)) == MG_OK;
    case CONFIG_TYPE_ARRAY:
    case CONFIG_TYPE_LIST:
        *ret_quoted = true;
        for (int i = 0; i < config_setting_length(s); i++) {
            const char *part = config_setting_get_string_elem(s, i);
            if (!part || mg_buf_printf(out, "%s%s", i ? "," : "", part) < 0)
                return false;
        }
        return mg_buf_str(out, "") == MG_OK;
    default:
        return false;
    }
}

static mg_rc read_option(struct reading *r, const config_setting_t *s, const char *name)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(FILE_MAX);
    char origin[ORIGIN_MAX], near[96];
    bool quoted;
    enum mg_opt o = conf_find(mg_sv_of(name));

    origin_of(r, s, origin);
    if (o == MG_OPT_COUNT || strchr(name, '-')) {
        conf_nearest(mg_sv_of(name), near);
        return mg_err_set(r->err, MG_ECONFIG, "%s: there is no option '%s'%s", origin, name, near);
    }
    if (r->seen[o])
        return mg_err_set(r->err, MG_ECONFIG, "%s: %s is given twice; keep one", origin, name);
    r->seen[o] = true;
    if (!value_text(s, &text, &quoted) || (!quoted && mg_opt_table[o].type == MG_CONF_STRING))
        return mg_err_set(r->err, MG_ECONFIG, "%s: %s needs a text in double quotes", origin, name);
    (void)snprintf(origin, sizeof(origin), "%s:%u: %s", r->name, config_setting_source_line(s), name);
    mg_rc rc = conf_put(r->conf, o, text.ptr, origin, r->err);
    mg_wipe(text.ptr, text.len);
    return rc;
}

static mg_rc read_plugin_value(struct reading *r, const config_setting_t *s, const char *plugin)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(FILE_MAX);
    struct mg_arena *a = r->conf->arena;
    struct conf_plugin_value *v = mg_arena_new_of(a, struct conf_plugin_value);
    char origin[ORIGIN_MAX];

    origin_of(r, s, origin);
    if (!value_text(s, &text, &v->quoted))
        return mg_err_set(r->err, MG_ECONFIG, "%s: plugins.%s.%s needs a text, a number, true or false", origin, plugin,
                          config_setting_name(s));
    v->plugin = mg_arena_strdup(a, mg_sv_of(plugin));
    v->key = mg_arena_strdup(a, mg_sv_of(config_setting_name(s)));
    v->text = mg_arena_strdup(a, mg_buf_view(&text));
    *r->tail = v;
    r->tail = &v->next;
    return MG_OK;
}

static mg_rc read_plugins(struct reading *r, const config_setting_t *plugins)
{
    char origin[ORIGIN_MAX];

    for (int i = 0; i < config_setting_length(plugins); i++) {
        const config_setting_t *section = config_setting_get_elem(plugins, (unsigned)i);
        if (!config_setting_is_group(section)) {
            origin_of(r, section, origin);
            return mg_err_set(r->err, MG_ECONFIG, "%s: plugins.%s needs a section: %s: { key = \"value\"; };", origin,
                              config_setting_name(section), config_setting_name(section));
        }
        for (int k = 0; k < config_setting_length(section); k++) {
            mg_rc rc =
                read_plugin_value(r, config_setting_get_elem(section, (unsigned)k), config_setting_name(section));
            if (rc < 0)
                return rc;
        }
    }

    return MG_OK;
}

/* `node: { ttl = "20s"; }` is another spelling of node_ttl. */
static mg_rc read_group(struct reading *r, const config_setting_t *group)
{
    char name[2 * KEY_MAX];

    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *s = config_setting_get_elem(group, (unsigned)i);
        (void)snprintf(name, sizeof(name), "%.*s_%.*s", KEY_MAX - 1, config_setting_name(group), KEY_MAX - 1,
                       config_setting_name(s));
        mg_rc rc = read_option(r, s, name);
        if (rc < 0)
            return rc;
    }

    return MG_OK;
}

static mg_rc read_all(struct reading *r, const config_t *file)
{
    const config_setting_t *root = config_root_setting(file);

    for (int i = 0; i < config_setting_length(root); i++) {
        const config_setting_t *s = config_setting_get_elem(root, (unsigned)i);
        const char *name = config_setting_name(s);
        mg_rc rc;
        if (!config_setting_is_group(s))
            rc = read_option(r, s, name);
        else if (strcmp(name, "plugins") == 0)
            rc = read_plugins(r, s);
        else
            rc = read_group(r, s);
        if (rc < 0)
            return rc;
    }

    return MG_OK;
}

/* libconfig would open the named file from wherever the server stands. */
static int line_of_include(const char *text)
{
    int line = 1;

    for (struct mg_sv rest = mg_sv_of(text); rest.len; line++) {
        struct mg_sv trimmed = mg_sv_trim(mg_sv_split(&rest, '\n'));
        if (mg_sv_starts(trimmed, "@include"))
            return line;
    }

    return 0;
}

static void config_cleanup(config_t *file)
{
    config_destroy(file);
}

mg_rc conf_read_text(struct mg_conf *c, const char *text, const char *name, struct mg_err *err)
{
    __attribute__((cleanup(config_cleanup))) config_t file;
    struct reading r = {.conf = c, .name = name, .err = err, .tail = &c->plugins};
    int include = line_of_include(text);

    config_init(&file);
    if (include)
        return mg_err_set(err, MG_ECONFIG, "%s:%d: @include is not supported; write the settings into this file", name,
                          include);
    if (!config_read_string(&file, text))
        return mg_err_set(err, MG_ECONFIG, "%s:%d: %s", name, config_error_line(&file), config_error_text(&file));
    return read_all(&r, &file);
}

mg_rc conf_read_file(struct mg_conf *c, const char *path, bool may_be_missing, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(FILE_MAX);
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char piece[16 * 1024];
    ssize_t n;

    if (fd < 0 && errno == ENOENT && may_be_missing)
        return MG_OK;
    if (fd < 0) {
        (void)mg_err_errno(err, errno, "%s", path);
        if (err)
            err->rc = MG_ECONFIG;
        return MG_ECONFIG;
    }
    while ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && mg_buf_append(&text, piece, (size_t)n) < 0)
            return mg_err_set(err, MG_ECONFIG, "%s: larger than %d bytes", path, FILE_MAX);
    if (n < 0) {
        (void)mg_err_errno(err, errno, "%s", path);
        if (err)
            err->rc = MG_ECONFIG;
        return MG_ECONFIG;
    }
    struct mg_sv all = mg_buf_view(&text);
    if (mg_sv_find(all, '\0') < all.len)
        return mg_err_set(err, MG_ECONFIG, "%s: a NUL byte at offset %zu; this is not a text file", path,
                          mg_sv_find(all, '\0'));
    mg_rc rc = conf_read_text(c, all.ptr, path, err);
    mg_wipe(piece, sizeof(piece));
    if (text.ptr)
        mg_wipe(text.ptr, text.len);
    return rc;
}
