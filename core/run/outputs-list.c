/* What is in the folder: one command lists the files, with the hashes of those that it can read. A file that holds what is published of it costs the backend
 * nothing more: no stat, no read. Times of files would not do: `cp -p` and `tar` set them back, and two writes may fall into one tick of their clock. */
#include "base/clock.h"
#include "base/utf8.h"
#include "domain/check.h"
#include "domain/digest-line.h"
#include "domain/file.h"
#include "run/outputs-internal.h"

/* All files, each with a NUL behind it; "end" and a NUL when that is the whole list; then lines of sha256sum, where the sandbox has it. */
#define LIST                                                                            \
    "find " MG_OUTPUTS_PATH " ! -type d -print0 && printf 'end\\0' && "                 \
    "command -v sha256sum >/dev/null 2>&1 && find " MG_OUTPUTS_PATH " -type f ! -size " \
    "+1024000 -exec sha256sum {} +"
_Static_assert(MG_FILE_BYTES_MAX == 1024000 * 512, "find counts blocks of 512 bytes: -size +1024000 in LIST");

enum {
    PATH_BYTES = 4 * MG_OUTPUT_PATH_CHARS + sizeof(MG_OUTPUTS_PATH "/"),
    LINE_BYTES = MG_SHA256_HEX + 3 + 2 * PATH_BYTES,               /* of sha256sum: each byte may have an escape */
    LIST_BYTES = (MG_OUTPUTS_MAX + 1) * (PATH_BYTES + LINE_BYTES), /* what one more than may be published take */
    LIST_MS = 60000,
    NAME_SHOWN = 120, /* bytes of a name in the notes */
};

struct digest {
    struct mg_sv path, sha256; /* path: below the folder */
};

struct listing {
    struct mg_sv files; /* each with a NUL behind it */
    struct digest *digests;
    int n;
};

void mg_publication_note(struct mg_publication *p, struct mg_sv path, const char *why)
{
    p->n_notes++;
    size_t before = p->notes.len;
    if (before > MG_OUTPUTS_NOTES_BYTES - 600)
        return;
    (void)mg_buf_str(&p->notes, before ? "; '" : "'");
    for (size_t i = 0, n = mg_utf8_floor(path, NAME_SHOWN); i < n; i++)
        (void)mg_buf_char(&p->notes, (unsigned char)path.ptr[i] < ' ' || path.ptr[i] == 0x7f ? '?' : path.ptr[i]);
    (void)mg_buf_printf(&p->notes, "%s' %.200s", path.len > NAME_SHOWN ? "..." : "", why);
}

mg_rc mg_publication_in_time(const struct mg_publication *p, struct mg_err *err)
{
    if (mg_cancel_fired(p->run->cancel))
        return mg_err_set(err, MG_ECANCELED, "interrupted");
    if (mg_now_ns() > p->deadline_ns)
        return mg_err_set(err, MG_ETIMEOUT, "reading them took longer than %d s", MG_OUTPUTS_MS / 1000);
    return MG_OK;
}

const struct mg_output_row *mg_publication_old(const struct mg_publication *p, struct mg_sv path)
{
    for (int i = 0; i < p->n_old; i++)
        if (mg_sv_eq(p->old[i].path, path))
            return &p->old[i];
    return NULL;
}

/* ---- the command ---- */

/* What has no whole line has no hash: the command may have been ended by its time limit. */
static void take_digests(struct mg_publication *p, struct mg_sv lines, struct listing *l)
{
    static const size_t PREFIX = sizeof(MG_OUTPUTS_PATH);
    int n = 0;
    for (size_t i = 0; i < lines.len; i++)
        n += lines.ptr[i] == '\n';
    l->digests = mg_arena_alloc(p->a, sizeof(*l->digests) * (size_t)(n + 1));
    while (n-- > 0) {
        struct digest *d = &l->digests[l->n];
        struct mg_sv name, line = mg_sv_split(&lines, '\n');
        if (!mg_digest_line(p->a, line, &d->sha256, &name) || !mg_sv_starts(name, MG_OUTPUTS_PATH "/"))
            continue;
        d->path = mg_sv_from(name, PREFIX);
        l->n++;
    }
}

static mg_rc run_find(struct mg_publication *p, struct listing *ret, struct mg_err *err)
{
    static const char *const argv[] = {"/bin/sh", "-c", LIST, NULL};
    static const struct mg_sv END = {"end", sizeof("end")};
    mg_auto(buf) struct mg_buf list = MG_BUF_INIT(LIST_BYTES);
    struct mg_exec_status st = {0};
    const struct mg_exec_req req = {.argv = argv,
                                    .deadline_ns = mg_now_ns() + LIST_MS * UINT64_C(1000000),
                                    .cancel = p->run->cancel,
                                    .sink = mg_exec_to_buf,
                                    .sink_ctx = &list};
    mg_rc rc = p->ops->exec(p->box, &req, &st, err);
    if (rc < 0)
        return rc;
    if (!mg_buf_ok(&list))
        return mg_err_set(err, MG_EINVAL, "there are more than %d files, which a session may publish", MG_OUTPUTS_MAX);
    struct mg_sv text = mg_arena_sv(p->a, mg_buf_view(&list)), rest = text;
    while (rest.len && !(rest.len >= END.len && memcmp(rest.ptr, END.ptr, END.len) == 0))
        (void)mg_sv_split(&rest, '\0');
    if (!rest.len)
        return mg_err_set(err, MG_EINVAL,
                          "they cannot be listed; the sandbox needs find with -print0, and leave to read all folders");
    ret->files = mg_sv_n(text.ptr, text.len - rest.len);
    take_digests(p, mg_sv_from(rest, END.len), ret);
    return MG_OK;
}

/* ---- its files ---- */

static void set_digest(const struct listing *l, struct mg_output *x)
{
    for (int i = 0; i < l->n; i++)
        if (mg_sv_eq(l->digests[i].path, x->path))
            memcpy(x->sha256, l->digests[i].sha256.ptr, sizeof(x->sha256) - 1);
}

/* Whether it is a regular file that can be published. */
static mg_rc ask(struct mg_publication *p, struct mg_output *x, bool *ret_ok, struct mg_err *err)
{
    struct mg_file_stat st;
    const char *place = mg_arena_printf(p->a, MG_OUTPUTS_PATH "/%.*s", MG_SV_ARG(x->path)).ptr;
    mg_rc rc = p->ops->stat(p->box, place, &st, err);
    if (rc == MG_ENOTFOUND || rc == MG_EINVAL || rc == MG_EDENIED || (rc >= 0 && st.kind != 'f')) {
        mg_publication_note(p, x->path,
                            rc < 0           ? "cannot be read"
                            : st.kind == 'l' ? "is a link"
                                             : "is no regular file");
        return MG_OK;
    }
    if (rc < 0)
        return rc;
    x->size = st.size;
    *ret_ok = st.size <= MG_FILE_BYTES_MAX;
    if (!*ret_ok)
        mg_publication_note(p, x->path, mg_arena_printf(p->a, "has more than %lld bytes", MG_FILE_BYTES_MAX).ptr);
    return MG_OK;
}

/* A name that clients may see, and a regular file. False: it is left out. */
static mg_rc look_at(struct mg_publication *p, const struct listing *l, struct mg_sv path, struct mg_output *x,
                     bool *ret_ok, struct mg_err *err)
{
    *ret_ok = false;
    *x = (struct mg_output){.path = path};
    if (!mg_utf8_valid(path, NULL) || mg_text_hides(path) || mg_utf8_count(path) > MG_OUTPUT_PATH_CHARS) {
        mg_publication_note(p, path,
                            mg_arena_printf(p->a,
                                            "has a name that is not UTF-8, holds control characters or direction "
                                            "marks, or is longer than %d characters",
                                            MG_OUTPUT_PATH_CHARS)
                                .ptr);
        return MG_OK;
    }
    if (mg_file_name(p->a, path, MG_SV(""), &x->filename, err) < 0) {
        mg_publication_note(p, path, "has a name that a file cannot have");
        return MG_OK;
    }
    x->mime = mg_file_type(p->a, MG_SV(""), x->filename);
    set_digest(l, x);
    const struct mg_output_row *old = mg_publication_old(p, path);
    x->kept = old && mg_sv_eqz(old->sha256, x->sha256);
    if (!x->kept)
        return ask(p, x, ret_ok, err);
    x->size = old->size;
    *ret_ok = true;
    return MG_OK;
}

static mg_rc take_files(struct mg_publication *p, struct listing *l, struct mg_err *err)
{
    static const size_t PREFIX = sizeof(MG_OUTPUTS_PATH);
    int64_t sum = 0;
    int n = 0;
    mg_rc rc = MG_OK;
    for (size_t i = 0; i < l->files.len; i++)
        n += l->files.ptr[i] == '\0';
    if (n > MG_OUTPUTS_MAX)
        return mg_err_set(err, MG_EINVAL, "there are %d files; a session may publish %d", n, MG_OUTPUTS_MAX);
    p->files = mg_arena_alloc(p->a, sizeof(*p->files) * (size_t)(n + 1));
    while (l->files.len && rc >= 0) {
        bool ok = false;
        struct mg_sv path = mg_sv_split(&l->files, '\0');
        if (path.len <= PREFIX)
            return mg_err_set(err, MG_EINVAL, MG_MOUNT_OUTPUTS " is no folder");
        rc = mg_publication_in_time(p, err);
        if (rc >= 0)
            rc = look_at(p, l, mg_sv_from(path, PREFIX), &p->files[p->n], &ok, err);
        if (rc < 0 || !ok)
            continue;
        sum += p->files[p->n++].size;
        if (sum > MG_OUTPUTS_BYTES)
            return mg_err_set(err, MG_EINVAL, "they have more than %lld bytes together", MG_OUTPUTS_BYTES);
    }
    return rc;
}

mg_rc mg_publication_list(struct mg_publication *p, struct mg_err *err)
{
    struct listing l = {.n = 0};
    struct mg_file_stat st;
    mg_rc rc = p->ops->stat(p->box, MG_OUTPUTS_PATH, &st, err);
    if (rc == MG_ENOTFOUND)
        return MG_OK; /* nothing was ever put there, or all of it was removed */
    if (rc < 0)
        return rc;
    if (st.kind != 'd')
        return mg_err_set(err, MG_EINVAL, MG_MOUNT_OUTPUTS " is no folder");
    rc = run_find(p, &l, err);
    return rc < 0 ? rc : take_files(p, &l, err);
}
