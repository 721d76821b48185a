#include "worker/skills.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>

#include "base/log.h"
#include "common/hostbox/remove.h"
#include "domain/zip.h"
#include "worker/dir.h"

enum {
    ARCHIVE_MAX = MG_SKILL_BYTES_MAX + 4 * 1024 * 1024, /* bytes: files, heads and paths */
    DOWNLOAD_MS = 300000,                               /* one try: 30 MB over a slow line */
    PATH_BYTES = 8192,                                  /* of a request's path */
    SKILLS_BYTES_MAX = 500 * 1000 * 1000,               /* of a session's skills together: the disk of a box is small */
};

struct mg_worker_skills {
    int fd;                     /* the folder skills; -1: there is none */
    char *names[MG_SKILLS_MAX]; /* the folders that were made in it */
    unsigned n;
    uint64_t bytes;
};

/* One skill while it is prepared. */
struct job {
    const struct mg_remote *remote;
    struct mg_tether *tether;
    struct mg_arena *arena;
    struct mg_sv skill_id, version, version_id, name;
};

static mg_rc get(const struct job *j, const char *accept, struct mg_sv version, const char *tail, size_t max,
                 uint32_t call_ms, struct mg_remote_answer *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf path = MG_BUF_INIT(PATH_BYTES);
    (void)mg_buf_str(&path, "/v1/skills/");
    (void)mg_buf_percent(&path, j->skill_id);
    (void)mg_buf_str(&path, "/versions/");
    (void)mg_buf_percent(&path, version);
    if (mg_buf_str(&path, tail) < 0)
        return mg_err_set(err, MG_EUNAVAIL, "its id is too long");
    const struct mg_remote_req q = {
        .method = "GET",
        .path = path.ptr,
        .accept = accept,
        .beta = "",
        .call_ms = call_ms,
        .max_bytes = max,
        .cancel = j->tether->leave,
    };
    return mg_remote_call(j->remote, &q, ret, err);
}

/* A name as one component of a path; the skill's id where it is none. */
static struct mg_sv folder_name(struct mg_sv name, struct mg_sv fallback)
{
    name = mg_sv_trim(name);
    for (size_t at; (at = mg_sv_find(name, '/')) < name.len;)
        name = mg_sv_from(name, at + 1);
    return mg_dir_component(name) ? name : fallback;
}

/* What the version's metadata say: "latest" becomes the version that it is now. */
static mg_rc read_version(struct job *j, struct mg_err *err)
{
    mg_auto(remote_answer) struct mg_remote_answer a = {.status = 0};
    struct mg_json *v = NULL;
    mg_rc rc = get(j, NULL, j->version, "", 0, 0, &a, err);
    if (rc == MG_OK)
        rc = mg_json_parse(j->arena, mg_arena_sv(j->arena, mg_buf_view(&a.body)), &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return rc;
    j->version_id = mg_json_get_str(j->arena, v, "id");
    j->name = folder_name(mg_json_get_str(j->arena, v, "name"), j->skill_id);
    if (!mg_dir_component(j->name))
        return mg_err_set(err, MG_EINVAL, "neither its name nor its skill_id can be the name of a folder");
    return j->version_id.len ? MG_OK : mg_err_set(err, MG_EUNAVAIL, "the server's answer names no version");
}

/* Without the top folder: NAME/SKILL.md becomes skills/NAME/SKILL.md. */
static mg_rc write_files(int dir, struct mg_arena *a, const struct mg_skill_bundle *b, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < b->n && rc == MG_OK; i++) {
        const struct mg_skill_file *f = &b->files[i];
        const char *path = mg_arena_strdup(a, mg_sv_from(f->path, b->directory.len + 1));
        rc = mg_dir_write(dir, path, f->content, f->executable ? 0755 : 0644, true, err);
    }
    return rc;
}

/* The skill's folder, empty; what was there is an earlier item's. */
static int fresh_folder(struct mg_worker_skills *s, const char *name)
{
    int e = remove_tree(s->fd, name);
    if (e == ENOTDIR || e == ELOOP)
        e = unlinkat(s->fd, name, 0) < 0 ? errno : 0; /* a link or a file of that name */
    if (e)
        return -e;
    s->names[s->n++] = mg_xstrdup(name);
    return mg_dir_open(s->fd, name, true);
}

static mg_rc unpack(struct mg_worker_skills *s, struct job *j, struct mg_sv archive, struct mg_err *err)
{
    struct mg_skill_file *files;
    struct mg_skill_bundle b = {.n = 0};
    int n = 0;
    mg_rc rc = mg_zip_read(j->arena, archive, &files, &n, err);
    if (rc == MG_OK)
        rc = mg_skill_layout(files, n, &b, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < b.n; i++)
        s->bytes += b.files[i].content.len;
    if (s->bytes > SKILLS_BYTES_MAX)
        return mg_err_set(err, MG_EINVAL, "the session's skills have more than %d bytes together; attach fewer",
                          SKILLS_BYTES_MAX);
    const char *name = mg_arena_strdup(j->arena, j->name);
    mg_autofd int dir = fresh_folder(s, name);
    if (dir < 0)
        return mg_err_errno(err, -dir, "the folder skills/%s", name);
    return write_files(dir, j->arena, &b, err);
}

static mg_rc prepare_one(struct mg_worker_skills *s, struct job *j, struct mg_err *err)
{
    mg_auto(remote_answer) struct mg_remote_answer a = {.status = 0};
    mg_rc rc = read_version(j, err);
    if (rc == MG_OK)
        rc = get(j, "application/binary", j->version_id, "/content", ARCHIVE_MAX, DOWNLOAD_MS, &a, err);
    if (rc < 0) /* a refusal of the server's says nothing of the archive */
        return rc == MG_ETOOBIG && a.status == 0 ? MG_EINVAL : rc == MG_EINVAL ? MG_EUNAVAIL : rc;
    rc = unpack(s, j, mg_buf_view(&a.body), err);
    if (rc == MG_OK)
        mg_log(MG_INFO, "a skill is prepared", MG_F_SV("skill", j->skill_id), MG_F_SV("version", j->version_id),
               MG_F_SV("folder", j->name));
    return rc;
}

mg_rc mg_worker_skills_prepare(const struct mg_remote *r, const char *workdir, const struct mg_json *skills,
                               struct mg_tether *t, struct mg_worker_skills **ret, struct mg_err *err)
{
    struct mg_worker_skills *s = *ret = mg_xcalloc(1, sizeof(*s));
    s->fd = -1;
    if (!mg_json_is(skills, MG_JSON_ARRAY) || skills->n == 0)
        return MG_OK;
    mg_autofd int root = open(workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s->fd = root < 0 ? -errno : mg_dir_open(root, "skills", true);
    if (s->fd < 0) {
        mg_log(MG_ERROR, "the session is served without its skills: their folder cannot be made",
               MG_F_STR("error", strerror(-s->fd)));
        return MG_OK;
    }
    for (const struct mg_json *e = skills->child; e; e = e->next) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err why = {0};
        struct job j = {.remote = r,
                        .tether = t,
                        .arena = a,
                        .skill_id = mg_json_get_str(a, e, "skill_id"),
                        .version = mg_json_get_str(a, e, "version")};
        mg_rc rc =
            s->n < MG_SKILLS_MAX
                ? prepare_one(s, &j, &why)
                : mg_err_set(&why, MG_EINVAL, "the session has more than %d skills; attach fewer", MG_SKILLS_MAX);
        if (mg_tether_ended(t) != MG_TETHER_RUNS)
            return mg_err_set(err, MG_ECANCELED, "the worker was asked to leave before the tools began");
        if (rc == MG_EINVAL)
            return mg_err_set(err, MG_EINVAL, "skill %.*s, version %.*s: %s", MG_SV_ARG(j.skill_id),
                              MG_SV_ARG(j.version), why.text);
        if (rc < 0)
            mg_log(MG_ERROR, "a skill is not prepared; the session is served without it", MG_F_SV("skill", j.skill_id),
                   MG_F_STR("error", why.text));
    }
    return MG_OK;
}

void mg_worker_skills_remove(struct mg_worker_skills *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->n; i++) {
        int e = remove_tree(s->fd, s->names[i]);
        if (e)
            mg_log(MG_WARN, "a skill's folder could not be removed", MG_F_STR("folder", s->names[i]),
                   MG_F_STR("error", strerror(e)));
        free(s->names[i]);
    }
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
