#include "domain/skill.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "json/write.h"

/* ---- paths ---- */

/* A path as an error may show it: without what a terminal would obey. */
static struct mg_sv shown(struct mg_sv s, char out[96])
{
    size_t n = 0;
    for (size_t i = 0; i < s.len && n < 90; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        out[n++] = (char)(c < ' ' || c == 0x7f ? '?' : c);
    }
    n = mg_utf8_floor(mg_sv_n(out, n), n);
    return mg_utf8_valid(mg_sv_n(out, n), NULL) ? mg_sv_n(out, n) : MG_SV("?");
}

static mg_rc bad_path(struct mg_sv path, const char *why, struct mg_err *err)
{
    char text[96];
    return mg_err_set(err, MG_EINVAL, "files: '%.*s': %s", MG_SV_ARG(shown(path, text)), why);
}

static const char *component_fault(struct mg_sv s)
{
    if (s.len == 0)
        return "has an empty component, or is absolute";
    if (mg_sv_eqz(s, ".") || mg_sv_eqz(s, ".."))
        return "has '.' or '..' in it";
    if (s.len > MG_SKILL_COMPONENT_MAX)
        return "has a component of more than 255 bytes";
    if (s.ptr[s.len - 1] == '.' || s.ptr[s.len - 1] == ' ' || s.ptr[0] == ' ')
        return "has a component that begins or ends in a space or ends in a dot";
    return NULL;
}

mg_rc mg_skill_path_check(struct mg_sv path, struct mg_err *err)
{
    const char *why = NULL;
    struct mg_sv rest = path;
    if (path.len == 0)
        return mg_err_set(err, MG_EINVAL, "files: a file has no name");
    if (path.len > MG_SKILL_PATH_MAX)
        why = "has more than 1,024 bytes";
    else if (!mg_utf8_valid(path, NULL))
        why = "is not UTF-8";
    else if (mg_text_hides(path))
        why = "has control characters, or line or direction marks";
    else if (memchr(path.ptr, '\\', path.len))
        why = "has a backslash; use slashes";
    else if (memchr(path.ptr, ':', path.len))
        why = "has a colon";
    if (rest.ptr[rest.len - 1] == '/')
        rest.len--; /* a folder */
    for (bool more = !why; more && !why;) {
        size_t at = mg_sv_find(rest, '/');
        more = at < rest.len;
        why = component_fault(mg_sv_n(rest.ptr, at));
        if (more && at + 1 == rest.len)
            why = "has an empty component";
        rest = mg_sv_from(rest, at + 1);
    }
    return why ? bad_path(path, why, err) : MG_OK;
}

/* ---- front matter ---- */

static bool line_of(struct mg_sv *rest, struct mg_sv *line)
{
    if (rest->len == 0)
        return false;
    *line = mg_sv_split(rest, '\n');
    if (line->len && line->ptr[line->len - 1] == '\r')
        line->len--;
    return true;
}

static mg_rc front_fault(struct mg_err *err, const char *why)
{
    return mg_err_set(err, MG_EINVAL, "SKILL.md: %s", why);
}

/* The text between the first line "---" and the next one. */
static mg_rc front_text(struct mg_sv text, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv rest = text, line = MG_SV("");
    if (!line_of(&rest, &line) || !mg_sv_eqz(line, "---"))
        return front_fault(err,
                           "must begin with front matter: a line '---', name and description, and another line '---'");
    const char *from = rest.ptr;
    while (line_of(&rest, &line)) {
        if ((size_t)(line.ptr - from) > MG_SKILL_FRONT_MAX)
            return front_fault(err, "the front matter has more than 65,536 bytes");
        if (mg_sv_eqz(line, "---")) {
            *ret = mg_sv_n(from, (size_t)(line.ptr - from));
            return MG_OK;
        }
    }
    return front_fault(err, "the front matter has no end; close it with a line '---'");
}

/* A quoted scalar on one line. */
static bool unquote(struct mg_sv v, struct mg_buf *out)
{
    char q = v.ptr[0];
    if (v.len < 2 || v.ptr[v.len - 1] != q)
        return false;
    for (size_t i = 1; i + 1 < v.len; i++) {
        if (q == '\'' && v.ptr[i] == q && (i + 2 >= v.len || v.ptr[++i] != q))
            return false;
        if (q == '"' && v.ptr[i] == q)
            return false;
        if (q == '"' && v.ptr[i] == '\\') {
            static const char from[] = "\"\\/nt", to[] = "\"\\/\n\t";
            const char *at = i + 2 < v.len ? strchr(from, v.ptr[++i]) : NULL;
            if (!at || !*at)
                return false;
            (void)mg_buf_char(out, to[at - from]);
            continue;
        }
        (void)mg_buf_char(out, v.ptr[i]);
    }
    return mg_buf_ok(out);
}

/* A plain scalar must not be one of YAML's other forms. */
static bool plain(struct mg_sv v, struct mg_buf *out)
{
    if (strchr("&*!|>%@`[]{},#?-", v.ptr[0]) && v.len > 0)
        return false;
    for (size_t i = 0; i + 1 < v.len; i++) {
        if (v.ptr[i] == ' ' && v.ptr[i + 1] == '#')
            return false;
        if (v.ptr[i] == ':' && v.ptr[i + 1] == ' ')
            return false;
    }
    return mg_buf_sv(out, v) == MG_OK;
}

/* Indented lines that follow: a block scalar ('|' keeps lines, '>' and a plain one's continuation fold them). */
static void block(struct mg_sv *rest, bool fold, struct mg_buf *out)
{
    struct mg_sv line, before;
    for (before = *rest; line_of(rest, &line); before = *rest) {
        if (line.len && line.ptr[0] != ' ' && line.ptr[0] != '\t') {
            *rest = before;
            return;
        }
        struct mg_sv text = mg_sv_trim(line);
        if (out->len)
            (void)mg_buf_char(out, fold ? ' ' : '\n');
        (void)mg_buf_sv(out, text);
    }
}

static mg_rc scalar(struct mg_sv v, struct mg_sv *rest, struct mg_buf *out, struct mg_err *err)
{
    mg_buf_reset(out);
    bool good = true;
    if (v.len == 0 || mg_sv_eqz(v, ">") || mg_sv_eqz(v, ">-") || mg_sv_eqz(v, "|") || mg_sv_eqz(v, "|-"))
        block(rest, v.len == 0 || v.ptr[0] == '>', out);
    else if (v.ptr[0] == '"' || v.ptr[0] == '\'')
        good = unquote(v, out);
    else if ((good = plain(v, out)))
        block(rest, true, out);
    return good ? MG_OK : front_fault(err, "name and description must be plain, quoted or block texts of YAML");
}

static mg_rc check_name(struct mg_sv s, struct mg_err *err)
{
    bool fits = s.len > 0 && s.len <= MG_SKILL_NAME_MAX;
    for (size_t i = 0; i < s.len; i++)
        fits =
            fits && ((s.ptr[i] >= 'a' && s.ptr[i] <= 'z') || (s.ptr[i] >= '0' && s.ptr[i] <= '9') || s.ptr[i] == '-');
    if (!fits)
        return front_fault(err, "name: must be 1 to 64 of the characters a-z, 0-9 and -");
    if (memmem(s.ptr, s.len, "anthropic", 9) || memmem(s.ptr, s.len, "claude", 6))
        return front_fault(err, "name: must not hold the reserved words anthropic and claude");
    return MG_OK;
}

static bool has_tag(struct mg_sv s)
{
    for (size_t i = 0; i + 1 < s.len; i++) {
        char next = s.ptr[i + 1] | 0x20;
        if (s.ptr[i] == '<' &&
            ((next >= 'a' && next <= 'z') || s.ptr[i + 1] == '/' || s.ptr[i + 1] == '!' || s.ptr[i + 1] == '?'))
            return true;
    }
    return false;
}

static mg_rc check_description(struct mg_sv s, struct mg_err *err)
{
    if (!mg_utf8_valid(s, NULL) || mg_sv_trim(s).len == 0 || mg_utf8_count(s) > MG_SKILL_DESCRIPTION_MAX)
        return front_fault(err, "description: must have 1 to 1,024 characters");
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < ' ' && s.ptr[i] != '\n' && s.ptr[i] != '\t')
            return front_fault(err, "description: must not hold control characters");
    if (has_tag(s))
        return front_fault(err, "description: must not hold tags");
    return MG_OK;
}

mg_rc mg_skill_front(struct mg_arena *a, struct mg_sv text, struct mg_sv *ret_name, struct mg_sv *ret_description,
                     struct mg_err *err)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(MG_SKILL_FRONT_MAX);
    struct mg_sv rest = MG_SV(""), line, name = {NULL, 0}, description = {NULL, 0};
    if (!mg_utf8_valid(text, NULL) || memchr(text.ptr, '\0', text.len))
        return front_fault(err, "must be UTF-8 without NUL");
    mg_rc rc = front_text(text, &rest, err);
    while (rc >= 0 && line_of(&rest, &line)) {
        size_t colon = mg_sv_find(line, ':');
        struct mg_sv key = mg_sv_n(line.ptr, colon), value = mg_sv_trim(mg_sv_from(line, colon + 1));
        struct mg_sv *to = mg_sv_eqz(key, "name") ? &name : mg_sv_eqz(key, "description") ? &description : NULL;
        if (!to)
            continue; /* another key, or what is nested below one */
        if (to->ptr)
            return front_fault(err, "name and description may stand once in the front matter");
        rc = scalar(value, &rest, &out, err);
        if (rc >= 0)
            *to = mg_arena_sv(a, mg_sv_trim(mg_buf_view(&out)));
    }
    if (rc >= 0 && !name.ptr)
        return front_fault(err, "name: is missing in the front matter");
    if (rc >= 0 && !description.ptr)
        return front_fault(err, "description: is missing in the front matter");
    if (rc >= 0)
        rc = check_name(name, err);
    if (rc >= 0)
        rc = check_description(description, err);
    *ret_name = name;
    *ret_description = description;
    return rc;
}

/* ---- the bundle ---- */

static int by_path(const void *x, const void *y)
{
    const struct mg_skill_file *a = x, *b = y;
    size_t n = a->path.len < b->path.len ? a->path.len : b->path.len;
    int order = memcmp(a->path.ptr, b->path.ptr, n);
    return order ? order : (a->path.len > b->path.len) - (a->path.len < b->path.len);
}

static mg_rc check_all(struct mg_skill_file *files, int n, struct mg_err *err)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        mg_rc rc = mg_skill_path_check(files[i].path, err);
        if (rc < 0)
            return rc;
        bytes += files[i].content.len;
        if (bytes >= MG_SKILL_BYTES_MAX)
            return mg_err_set(err, MG_EINVAL, "files: must have less than %d bytes together", MG_SKILL_BYTES_MAX);
    }
    return MG_OK;
}

/* No path twice, and none that is another one's folder. */
static mg_rc check_twins(const struct mg_skill_file *files, int n, struct mg_err *err)
{
    for (int i = 1; i < n; i++) {
        struct mg_sv p = files[i - 1].path, q = files[i].path;
        if (mg_sv_eq(p, q))
            return bad_path(q, "is there twice", err);
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n && k < i + 4096; k++) {
            struct mg_sv p = files[i].path, q = files[k].path;
            if (q.len <= p.len || memcmp(p.ptr, q.ptr, p.len) != 0)
                break;
            if (q.ptr[p.len] == '/')
                return bad_path(p, "is a file and a folder", err);
        }
    return MG_OK;
}

static mg_rc check_top(const struct mg_skill_file *files, int n, struct mg_sv *ret, struct mg_err *err)
{
    for (int i = 0; i < n; i++) {
        size_t at = mg_sv_find(files[i].path, '/');
        if (at == files[i].path.len)
            return bad_path(files[i].path, "must lie in the one top folder of the skill", err);
        struct mg_sv top = mg_sv_n(files[i].path.ptr, at);
        if (i == 0)
            *ret = top;
        else if (!mg_sv_eq(top, *ret))
            return bad_path(files[i].path, "lies in another top folder than the rest; a skill has one", err);
    }
    return MG_OK;
}

static bool names_directory(struct mg_sv directory, struct mg_sv name)
{
    if (directory.len != name.len)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = directory.ptr[i];
        c = (char)(c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c | 0x20 : c);
        if (c != name.ptr[i])
            return false;
    }
    return true;
}

static const struct mg_skill_file *find_skill_md(const struct mg_skill_bundle *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->files[i].path.len == b->directory.len + strlen("/SKILL.md") && mg_sv_ends(b->files[i].path, "/SKILL.md"))
            return &b->files[i];
    return NULL;
}

mg_rc mg_skill_layout(struct mg_skill_file *files, int n, struct mg_skill_bundle *ret, struct mg_err *err)
{
    struct mg_skill_bundle b = {.files = files};
    if (n > MG_SKILL_FILES_MAX)
        return mg_err_set(err, MG_EINVAL, "files: at most %d files are allowed", MG_SKILL_FILES_MAX);
    mg_rc rc = check_all(files, n, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++) /* folders say nothing that their files do not */
        if (files[i].path.ptr[files[i].path.len - 1] != '/')
            b.files[b.n++] = files[i];
    if (b.n == 0)
        return mg_err_set(err, MG_EINVAL, "files: there is no file; send SKILL.md in a folder of the skill's name");
    qsort(b.files, (size_t)b.n, sizeof(*b.files), by_path);
    rc = check_twins(b.files, b.n, err);
    if (rc >= 0)
        rc = check_top(b.files, b.n, &b.directory, err);
    *ret = b;
    return rc;
}

mg_rc mg_skill_check(struct mg_arena *a, struct mg_skill_file *files, int n, struct mg_skill_bundle *ret,
                     struct mg_err *err)
{
    struct mg_skill_bundle b = {0};
    mg_rc rc = mg_skill_layout(files, n, &b, err);
    if (rc < 0)
        return rc;
    const struct mg_skill_file *md = find_skill_md(&b);
    if (!md)
        return mg_err_set(err, MG_EINVAL, "files: '%.*s/SKILL.md' is missing", MG_SV_ARG(b.directory));
    rc = mg_skill_front(a, md->content, &b.name, &b.description, err);
    if (rc >= 0 && !names_directory(b.directory, b.name))
        rc = mg_err_set(err, MG_EINVAL, "files: the top folder '%.*s' must have the skill's name, '%.*s'",
                        MG_SV_ARG(b.directory), MG_SV_ARG(b.name));
    *ret = b;
    return rc;
}

/* ---- skills of an agent ---- */

static mg_rc check_version(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_sv *ret,
                           struct mg_err *err)
{
    char p[MG_PATH_MAX];
    *ret = mg_given(v) ? mg_json_str(a, v) : MG_SV("latest");
    bool digits = ret->len > 0 && ret->len < 20;
    for (size_t i = 0; i < ret->len; i++)
        digits = digits && ret->ptr[i] >= '0' && ret->ptr[i] <= '9';
    if (digits || mg_sv_eqz(*ret, "latest"))
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "%s: must be the id of a version, or 'latest'", mg_place(p, place, "version"));
}

bool mg_skill_is_vendors(struct mg_sv id)
{
    return !mg_sv_starts(id, "skill_");
}

static mg_rc parse_one(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_jw *w,
                       struct mg_err *err)
{
    static const char *const TYPES[] = {"custom", "anthropic", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = "skill_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
        {.name = "version", .type = MG_FT_STRING, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    struct mg_sv version = MG_SV("");
    char p[MG_PATH_MAX];
    int type = 0;
    mg_rc rc = mg_check_tag(a, v, place, TYPES, &type, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc >= 0)
        rc = check_version(a, m[2], place, &version, err);
    if (rc < 0)
        return rc;
    if (mg_skill_is_vendors(mg_json_str(a, m[1])) != (type == 1))
        return mg_err_set(err, MG_EINVAL, "%s: %s", mg_place(p, place, "skill_id"),
                          type == 1 ? "is that of a custom skill; the vendor's have a name, such as xlsx"
                                    : "is no custom skill's; those begin with skill_");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", TYPES[type]);
    mg_jw_kstr(w, "skill_id", mg_json_str(a, m[1]));
    mg_jw_kstr(w, "version", version);
    mg_jw_obj_end(w);
    return MG_OK;
}

mg_rc mg_agent_skills_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_sv *ret,
                            struct mg_err *err)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(256 * MG_SKILLS_MAX);
    struct mg_jw w = mg_jw_to(&b);
    char p[MG_PATH_MAX];
    unsigned i = 0;
    *ret = MG_SV("[]");
    if (!mg_given(v))
        return MG_OK;
    mg_jw_arr(&w);
    for (const struct mg_json *e = v->child; e; e = e->next, i++) {
        mg_rc rc = parse_one(a, e, mg_place_at(p, place, i), &w, err);
        if (rc < 0)
            return rc;
    }
    mg_jw_arr_end(&w);
    *ret = mg_arena_sv(a, mg_buf_view(&b));
    return MG_OK;
}
