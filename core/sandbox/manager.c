#include "sandbox/manager.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "sandbox/health.h"
#include "sandbox/internal.h"
#include "sandbox/keep.h"

static uint64_t in_ms(uint64_t ms)
{
    return mg_now_ns() + ms * UINT64_C(1000000);
}

/* ---- labels ---- */

static void label_of(const char *domain, struct mg_sv first, struct mg_sv second, bool two, char out[MG_LABEL_LEN])
{
    char hex[MG_SHA256_HEX];
    struct mg_sha256 *h = mg_sha256_new();
    mg_sha256_update(h, domain, strlen(domain) + 1); /* its NUL is the separator */
    mg_sha256_update(h, first.ptr, first.len);
    if (two) {
        mg_sha256_update(h, "", 1);
        mg_sha256_update(h, second.ptr, second.len);
    }
    mg_sha256_final_hex(h, hex);
    memcpy(out, hex, MG_LABEL_LEN - 1);
    out[MG_LABEL_LEN - 1] = '\0';
}

void mg_sandbox_label(struct mg_sv deployment_id, struct mg_sv session_id, char out[MG_LABEL_LEN])
{
    label_of("mango-sandbox-v1", deployment_id, session_id, true, out);
}

void mg_sandbox_owner(struct mg_sv deployment_id, char out[MG_LABEL_LEN])
{
    label_of("mango-deployment-v1", deployment_id, mg_sv_n("", 0), false, out);
}

/* ---- the manager and its entries ---- */

struct mg_sandboxes *mg_sandboxes_new(const struct mg_sandboxes_opts *opts)
{
    struct mg_sandboxes *m = mg_xcalloc(1, sizeof(*m));
    m->opts = *opts;
    m->deployment_id = mg_xstrndup(opts->deployment_id.ptr, opts->deployment_id.len);
    m->image = mg_xstrndup(opts->image.ptr ? opts->image.ptr : "", opts->image.len);
    m->opts.deployment_id = mg_sv_of(m->deployment_id);
    m->opts.image = mg_sv_of(m->image);
    mg_sandbox_owner(m->opts.deployment_id, m->owner);
    pthread_mutex_init(&m->lock, NULL);
    m->entries = mg_map_new();
    m->retries = mg_map_new();
    m->orphans = mg_map_new();
    m->backends = mg_map_new();
    return m;
}

static void free_value(void *ctx, struct mg_sv key, void *value)
{
    (void)ctx;
    (void)key;
    free(value);
}

void mg_sandboxes_free(struct mg_sandboxes *m)
{
    if (!m)
        return;
    mg_map_each(m->retries, free_value, NULL);
    mg_map_free(m->retries);
    mg_map_each(m->orphans, free_value, NULL);
    mg_map_free(m->orphans);
    mg_backends_free(m->backends);
    mg_map_free(m->entries); /* empty: no handle is out */
    pthread_mutex_destroy(&m->lock);
    free(m->deployment_id);
    free(m->image);
    free(m);
}

/* Finds or makes the session's entry and locks it. NULL: not an id. */
static struct mg_sandbox_entry *entry_lock(struct mg_sandboxes *m, struct mg_sv session)
{
    struct mg_id id;
    if (!mg_id_from(session, &id))
        return NULL;
    pthread_mutex_lock(&m->lock);
    struct mg_sandbox_entry *e = mg_map_get(m->entries, session);
    if (!e) {
        e = mg_xcalloc(1, sizeof(*e));
        e->session = id;
        pthread_mutex_init(&e->lock, NULL);
        (void)mg_map_put(m->entries, session, e);
    }
    e->refs++;
    pthread_mutex_unlock(&m->lock);
    pthread_mutex_lock(&e->lock);
    return e;
}

static void entry_ref(struct mg_sandboxes *m, struct mg_sandbox_entry *e)
{
    pthread_mutex_lock(&m->lock);
    e->refs++;
    pthread_mutex_unlock(&m->lock);
}

static void entry_unref(struct mg_sandboxes *m, struct mg_sandbox_entry *e)
{
    pthread_mutex_lock(&m->lock);
    bool last = --e->refs == 0;
    if (last)
        (void)mg_map_del(m->entries, mg_id_sv(&e->session));
    pthread_mutex_unlock(&m->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void entry_unlock(struct mg_sandboxes *m, struct mg_sandbox_entry *e)
{
    pthread_mutex_unlock(&e->lock);
    entry_unref(m, e);
}

/* ---- calls into the backend ---- */

/* What one acquire knows. */
struct work {
    struct mg_sandboxes *m;
    struct mg_sandbox_entry *entry;
    struct mg_pg *pg;
    struct mg_arena *a;
    struct mg_cancel *cancel;
    struct mg_spec spec;
    char label[MG_LABEL_LEN];
    bool existing; /* none is made */
    bool settling; /* for the reconciler: what is stored is what is wanted */
};

static mg_rc plugin_of(struct mg_sandboxes *m, struct mg_sv provider, struct mg_plugin **ret, struct mg_err *err)
{
    char name[MG_PLUGIN_NAME_MAX];
    if (m->opts.backend && mg_sv_eqz(provider, m->opts.backend->name)) {
        *ret = m->opts.backend;
        return MG_OK;
    }
    if (!mg_plugin_name_ok(provider))
        return mg_err_set(err, MG_EINTERNAL, "the stored sandbox names a backend that cannot exist");
    memcpy(name, provider.ptr, provider.len);
    name[provider.len] = '\0';
    struct mg_err own = {0};
    if (mg_registry_get(m->opts.registry, name, "backend of a stored sandbox", mg_sv_n(NULL, 0), ret, &own) == MG_OK)
        return MG_OK;
    mg_log(MG_ERROR, "the backend of a stored sandbox cannot be loaded", MG_F_STR("error", own.text));
    return mg_err_code(err, MG_ECONFLICT, "backend_absent",
                       "the session's sandbox is bound to backend '%s', which this server cannot load; its operator "
                       "must install it again",
                       name);
}

/* The same for a backend in which commands will run. */
static mg_rc runner_of(struct mg_sandboxes *m, struct mg_sv provider, struct mg_plugin **ret, struct mg_err *err)
{
    mg_rc rc = plugin_of(m, provider, ret, err);
    if (rc < 0 || !*ret || !m->opts.isolated_only || mg_plugin_isolated(*ret))
        return rc;
    return mg_err_set(err, MG_ECONFLICT,
                      "the session's sandbox is bound to backend '%s', which is no isolation boundary, and this server "
                      "has a model on the network; its operator may set MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX=1",
                      (*ret)->name);
}

static struct mango_sandbox_spec abi_spec(struct work *w)
{
    struct mango_sandbox_spec s = w->spec.abi;
    s.label = (struct mango_sv){w->label, MG_LABEL_LEN - 1};
    s.owner = (struct mango_sv){w->m->owner, MG_LABEL_LEN - 1};
    s.network = &w->spec.network;
    return s;
}

static mg_rc check_ref(const struct mg_buf *id, const struct mg_buf *root, struct mg_err *err)
{
    struct mg_sv i = mg_buf_view(id), r = mg_buf_view(root);
    if (i.len == 0 || memchr(i.ptr, '\0', i.len) || !mg_utf8_valid(i, NULL))
        return mg_err_set(err, MG_EINTERNAL, "the sandbox adapter gave a reference that is empty or not UTF-8");
    if (r.len == 0 || r.ptr[0] != '/')
        return mg_err_set(err, MG_EINTERNAL, "the sandbox adapter gave no absolute path of the workspace");
    return MG_OK;
}

/* create (id empty) or attach. The handle is not in the entry yet. */
static mg_rc call_backend(struct work *w, struct mg_plugin *p, struct mg_sv id, struct mg_sandbox **ret,
                          struct mg_err *err)
{
    struct mg_err own = {0};
    mg_auto(buf) struct mg_buf ref_id = MG_BUF_INIT(MG_SANDBOX_REF_MAX);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(MG_SANDBOX_REF_MAX);
    mg_auto(buf) struct mg_buf identity = MG_BUF_INIT(MG_SANDBOX_REF_MAX);
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&ref_id,
                                    .root = (struct mango_buf *)&root,
                                    .identity = (struct mango_buf *)&identity};
    struct mango_sandbox_spec spec = abi_spec(w);
    struct mango_call call = mg_plugin_call(in_ms(MG_SANDBOX_CONTROL_MS), w->cancel, &own);
    enum mg_plugin_op op = id.len ? MG_OP_ATTACH : MG_OP_CREATE;
    struct mg_guard g = mg_guard_enter(p, op);
    mango_status status = id.len ? p->sandbox->attach(p->ctx, &call, (struct mango_sv){id.ptr, id.len}, &spec, &ref)
                                 : p->sandbox->create(p->ctx, &call, &spec, &ref);
    mg_rc rc = mg_plugin_rc(p, op, mg_guard_leave(&g, status), &own);
    bool answered = status != MANGO_ERETRY && status != MANGO_ETIMEOUT;
    mg_backend_note(mg_backend_of(w->m, p), answered, own.text);
    if (!answered) { /* what it began is found again by the next try */
        rc = MG_EUNAVAIL;
        (void)snprintf(own.code, sizeof(own.code), "backend_down");
    }
    if (rc == MG_OK)
        rc = check_ref(&ref_id, &root, &own);
    if (rc < 0) {
        if (err)
            *err = own;
        return mg_err_wrap(err, rc, "%s", id.len ? "find the session's sandbox again" : "make the session's sandbox");
    }
    *ret = mg_sandbox_new(w->m, w->entry, p, &ref_id, &root, &identity);
    mg_sandbox_keep_from(*ret, ref.expires_s);
    return MG_OK;
}

static mg_rc call_destroy(struct mg_plugin *p, struct mg_sv id, const char *label, struct mg_err *err)
{
    struct mg_err own = {0};
    struct mango_call call = mg_plugin_call(in_ms(MG_SANDBOX_DESTROY_MS), NULL, &own);
    struct mg_guard g = mg_guard_enter(p, MG_OP_DESTROY);
    mango_status s = p->sandbox->destroy(p->ctx, &call, (struct mango_sv){id.ptr, id.len},
                                         (struct mango_sv){label, MG_LABEL_LEN - 1});
    if (mg_guard_leave(&g, s) == MANGO_EGONE)
        return MG_OK;
    mg_rc rc = mg_plugin_rc(p, MG_OP_DESTROY, s, &own);
    if (rc < 0 && err)
        *err = own;
    return rc;
}

/* All that the session has at the backend: what is bound, then what a lost answer to its creation may have left. */
static mg_rc call_destroy_all(struct mg_plugin *p, struct mg_sv id, const char *label, struct mg_err *err)
{
    mg_rc rc = call_destroy(p, id, label, err);
    return rc == MG_OK ? call_destroy(p, mg_sv_n("", 0), label, err) : rc;
}

static void call_detach(struct mg_sandbox *s)
{
    const struct mango_sandbox_ops *ops = s->plugin->sandbox;
    struct mg_err own;
    struct mango_call call = mg_plugin_call(in_ms(MG_SANDBOX_DESTROY_MS), NULL, &own);
    if (MANGO_HAS(ops, detach))
        (void)ops->detach(s->plugin->ctx, &call, mg_sandbox_id(s));
}

/* One that was never handed out. */
static void drop(struct mg_sandbox *s)
{
    call_detach(s);
    mg_sandbox_free(s);
}

/* ---- attach ---- */

/* Kept in the row, so that every later try says the same until the client decides. */
static void note_lost(struct work *w, const struct mg_binding *b, struct mg_err *err)
{
    struct mg_err own;
    if (mg_binding_lost(w->pg, mg_id_sv(&w->entry->session), b->external_id, &own) < 0)
        mg_log(MG_WARN, "a lost workspace could not be noted", MG_F_STR("error", own.text));
    mg_log(MG_ERROR, "a session's workspace is lost", MG_F_STR("session", w->entry->session.s),
           MG_F_STR("why", err ? err->text : ""));
    if (err)
        (void)snprintf(err->code, sizeof(err->code), "workspace_lost");
}

/* The checks that need no backend. */
static mg_rc check_binding(const struct work *w, const struct mg_binding *b, struct mg_err *err)
{
    if (b->lost)
        return mg_err_code(err, MG_EGONE, "workspace_lost",
                           "the session's workspace is lost; delete the session and start a new one");
    if (!mg_sv_eqz(b->label, w->label))
        return mg_err_set(err, MG_EDENIED, "the stored sandbox belongs to another session or another deployment");
    if (!mg_spec_same_packages(&w->spec, b->spec_hash))
        return mg_err_set(err, MG_EINVAL, "config.packages: the session's sandbox was made with other packages");
    return MG_OK;
}

/* With the lock on attaches: the marker goes one step on, in the workspace first and in the row then. */
static mg_rc attach_marked(struct work *w, struct mg_plugin *p, const struct mg_binding *seen, struct mg_sandbox **ret,
                           struct mg_err *err)
{
    struct mg_sandbox *s = NULL;
    struct mg_sv next = {NULL, 0};
    struct mg_binding b = *seen;
    mg_rc rc = mg_binding_get(w->pg, w->a, mg_id_sv(&w->entry->session), &b, err); /* as it is under the lock */
    if (rc == MG_OK)
        rc = call_backend(w, p, b.external_id, &s, err);
    if (rc == MG_OK)
        rc = mg_marker_next(s, w->a, b.generation, &next, err);
    if (rc == MG_EGONE)
        note_lost(w, &b, err);
    mg_hook("sandbox.before_advance");
    if (rc == MG_OK)
        rc = mg_binding_advance(w->pg, mg_id_sv(&w->entry->session), b.generation, next, err);
    if (rc == MG_EFENCED)
        rc = mg_err_set(err, MG_EUNAVAIL, "another server attaches to the session's sandbox at this moment");
    if (rc == MG_OK)
        *ret = s;
    else if (s)
        drop(s);
    return rc;
}

static mg_rc attach(struct work *w, const struct mg_binding *b, struct mg_sandbox **ret, struct mg_err *err)
{
    struct mg_plugin *p = NULL;
    struct mg_sv session = mg_id_sv(&w->entry->session);
    mg_rc rc = check_binding(w, b, err);
    if (rc == MG_OK)
        rc = runner_of(w->m, b->provider, &p, err);
    if (rc == MG_OK && p)
        rc = mg_backend_gate(mg_backend_of(w->m, p), err);
    if (rc == MG_OK && p)
        rc = mg_attach_lock(w->pg, session, err);
    if (rc < 0 || !p)
        return rc;
    rc = attach_marked(w, p, b, ret, err);
    mg_attach_unlock(w->pg, session);
    return rc;
}

/* ---- create ---- */

static mg_rc install_packages(struct work *w, struct mg_sandbox *s, struct mg_err *err)
{
    if (w->spec.packages.len == 0)
        return MG_OK;
    const struct mango_sandbox_ops *ops = s->plugin->sandbox;
    struct mg_err own = {0};
    struct mango_call call = mg_plugin_call(in_ms(MG_SANDBOX_SETUP_MS), w->cancel, &own);
    struct mg_guard g = mg_guard_enter(s->plugin, MG_OP_PACKAGES);
    mango_status status = MANGO_EUNSUPPORTED;
    struct mango_sv json = {w->spec.packages.ptr, w->spec.packages.len};
    if (MANGO_HAS(ops, packages))
        status = ops->packages(s->plugin->ctx, &call, mg_sandbox_id(s), json, NULL, NULL);
    mg_rc rc = mg_plugin_rc(s->plugin, MG_OP_PACKAGES, mg_guard_leave(&g, status), &own);
    return rc < 0 ? mg_err_set(err, rc, "install the environment's packages: %s", own.text) : MG_OK;
}

/* True when the answer proves that no resource was made. Anything else may still turn into one. */
static bool nothing_made(mg_rc rc)
{
    return rc == MG_EINVAL || rc == MG_EDENIED || rc == MG_ERATE;
}

/* From the committed intent to a bound sandbox. in: what is to be made, as it is stored. */
static mg_rc create(struct work *w, const struct mg_intent *in, struct mg_sandbox **ret, struct mg_err *err)
{
    struct mg_plugin *p = NULL;
    struct mg_sandbox *s = NULL;
    struct mg_binding b = {.provider = in->provider, .label = in->label, .spec_hash = in->spec_hash};
    struct mg_sv session = mg_id_sv(&w->entry->session);
    mg_rc rc = runner_of(w->m, in->provider, &p, err);
    if (rc == MG_OK)
        rc = mg_spec_from_text(w->a, in->spec, &w->spec, err);
    if (rc < 0 || !p)
        return rc;
    mg_hook("sandbox.before_create");
    rc = call_backend(w, p, mg_sv_n("", 0), &s, err);
    mg_hook("sandbox.after_create");
    if (rc < 0 || !s) {
        struct mg_err own;
        if (nothing_made(rc) && mg_intent_failed(w->pg, session, mg_sv_of(err ? err->text : "refused"), &own) < 0)
            mg_log(MG_WARN, "a refused create could not be noted", MG_F_STR("error", own.text));
        return rc;
    }
    rc = install_packages(w, s, err);
    if (rc == MG_OK)
        rc = mg_marker_first(s, w->a, &b.generation, err);
    b.external_id = mg_arena_sv(w->a, mg_sv_of(s->external_id));
    if (rc == MG_OK)
        rc = mg_binding_insert(w->pg, w->a, session, &b, err);
    mg_hook("sandbox.after_bind");
    if (rc < 0) { /* a failed setup leaves the intent; a lost answer may have bound it: nothing is destroyed here */
        drop(s);
        return rc;
    }
    if (mg_sv_eqz(b.external_id, s->external_id)) {
        *ret = s;
        return MG_OK;
    }
    struct mg_err own;
    if (call_destroy(p, mg_sv_of(s->external_id), w->label, &own) < 0)
        mg_log(MG_WARN, "the loser of two creates is not destroyed", MG_F_STR("id", s->external_id),
               MG_F_STR("error", own.text));
    mg_sandbox_free(s);
    return attach(w, &b, ret, err);
}

/* A create that began with another backend or another spec is never adopted: whoever began it, or the reconciler, brings it
 * to its end as it is stored, and then the sandbox is found bound. */
static mg_rc same_intent(const struct work *w, const struct mg_intent *in, struct mg_err *err)
{
    if (w->settling || (mg_sv_eqz(in->provider, w->m->opts.backend->name) && mg_sv_eq(in->spec_hash, w->spec.hash)))
        return MG_OK;
    return mg_err_code(
        err, MG_EUNAVAIL, "backend_busy",
        "the session's sandbox is being made by backend '%.*s' with another specification; it is finished "
        "first, in at most %d s",
        MG_SV_ARG(in->provider), MG_SANDBOX_INTENT_GRACE_S);
}

static mg_rc begin_create(struct work *w, struct mg_sandbox **ret, struct mg_err *err)
{
    struct mg_plugin *p = w->m->opts.backend;
    if (!p)
        return mg_err_set(err, MG_EINVAL, "this server runs no sandbox: set MANGO_SANDBOX");
    struct mg_intent in = {.session_id = mg_id_sv(&w->entry->session),
                           .provider = mg_sv_of(p->name),
                           .label = mg_sv_of(w->label),
                           .spec = w->spec.text,
                           .spec_hash = w->spec.hash};
    bool bound = false;
    mg_rc rc = mg_spec_check(&w->spec, p, err);
    if (rc == MG_OK)
        rc = mg_backend_gate(mg_backend_of(w->m, p), err);
    if (rc == MG_OK)
        rc = mg_intent_begin(w->pg, w->a, &in, &bound, err);
    if (rc < 0)
        return rc;
    if (!bound)
        return same_intent(w, &in, err) == MG_OK ? create(w, &in, ret, err) : MG_EUNAVAIL;
    struct mg_binding b;
    rc = mg_binding_get(w->pg, w->a, in.session_id, &b, err);
    return rc < 0 ? rc : attach(w, &b, ret, err);
}

static mg_rc acquire_locked(struct work *w, struct mg_sandbox **ret, struct mg_err *err)
{
    struct mg_sandbox *live = w->entry->live;
    if (live && !atomic_load(&live->gone)) {
        mg_rc up = mg_sandbox_gate(live, err);
        if (up < 0)
            return up;
        live->refs++;
        *ret = live;
        return MG_OK;
    }
    w->entry->live = NULL; /* its handles find it gone until they are released */
    struct mg_binding b;
    mg_rc rc = mg_binding_get(w->pg, w->a, mg_id_sv(&w->entry->session), &b, err);
    if (rc == MG_ENOTFOUND && !w->existing)
        rc = begin_create(w, ret, err);
    else if (rc == MG_OK)
        rc = attach(w, &b, ret, err);
    if (rc < 0)
        return rc;
    entry_ref(w->m, w->entry);
    w->entry->live = *ret;
    return MG_OK;
}

static mg_rc acquire(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id, struct mg_sv env_config,
                     struct mg_cancel *cancel, bool existing, struct mg_sandbox **ret, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct work w = {.m = m, .pg = pg, .a = a, .cancel = cancel, .existing = existing};
    mg_rc rc = mg_spec_from_config(a, env_config, m->opts.image, &w.spec, err);
    if (rc < 0)
        return rc;
    w.entry = entry_lock(m, session_id);
    if (!w.entry)
        return mg_err_set(err, MG_EINVAL, "not a session id");
    mg_sandbox_label(m->opts.deployment_id, session_id, w.label);
    rc = acquire_locked(&w, ret, err);
    entry_unlock(m, w.entry);
    return rc;
}

mg_rc mg_sandbox_acquire(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id, struct mg_sv env_config,
                         struct mg_cancel *cancel, struct mg_sandbox **ret, struct mg_err *err)
{
    return acquire(m, pg, session_id, env_config, cancel, false, ret, err);
}

mg_rc mg_sandbox_acquire_existing(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id,
                                  struct mg_sv env_config, struct mg_sandbox **ret, struct mg_err *err)
{
    return acquire(m, pg, session_id, env_config, NULL, true, ret, err);
}

mg_rc mg_sandbox_settle(struct mg_sandboxes *m, struct mg_pg *pg, const struct mg_intent *in, struct mg_sandbox **ret,
                        struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct work w = {.m = m, .pg = pg, .a = a, .settling = true};
    mg_rc rc = mg_spec_from_text(a, in->spec, &w.spec, err);
    if (rc < 0)
        return rc;
    w.entry = entry_lock(m, in->session_id);
    if (!w.entry)
        return mg_err_set(err, MG_EINVAL, "not a session id");
    mg_sandbox_label(m->opts.deployment_id, in->session_id, w.label);
    rc = acquire_locked(&w, ret, err);
    entry_unlock(m, w.entry);
    return rc;
}

void mg_sandbox_release(struct mg_sandbox *s)
{
    if (!s)
        return;
    struct mg_sandboxes *m = s->manager;
    struct mg_sandbox_entry *e = s->entry;
    pthread_mutex_lock(&e->lock);
    bool last = --s->refs == 0;
    if (last && e->live == s) {
        e->live = NULL;
        if (!atomic_load(&s->gone))
            call_detach(s);
    }
    pthread_mutex_unlock(&e->lock);
    if (!last)
        return;
    mg_sandbox_free(s);
    entry_unref(m, e);
}

mg_rc mg_sandbox_check(const struct mg_sandboxes *m, struct mg_sv env_config, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_spec spec;
    mg_rc rc = mg_spec_from_config(a, env_config, m->opts.image, &spec, err);
    if (rc >= 0 && m->opts.backend)
        rc = mg_spec_check(&spec, m->opts.backend, err);
    else if (rc >= 0 && spec.packages.len)
        rc = mg_sandbox_check_any(m, "config.packages", err);
    else if (rc >= 0 && spec.network.mode == MANGO_NET_LIMITED)
        rc = mg_sandbox_check_any(m, "config.networking", err);
    return rc;
}

mg_rc mg_sandbox_check_any(const struct mg_sandboxes *m, const char *field, struct mg_err *err)
{
    if (m->opts.backend)
        return MG_OK;
    return mg_err_set(
        err, MG_EINVAL,
        "%s: needs a sandbox, and this server has no sandbox backend (MANGO_SANDBOX is not set); leave it "
        "out, or use a server with one",
        field);
}

mg_rc mg_sandbox_gate(const struct mg_sandbox *box, struct mg_err *err)
{
    return mg_backend_gate(box->backend, err);
}

bool mg_sandbox_fresh(const struct mg_sandbox *box)
{
    return mg_backend_fresh(box->backend);
}

/* ---- the end ---- */

/* Its handles answer MG_EGONE from now on. */
static void cut_off(struct mg_sandbox_entry *e)
{
    if (e->live)
        atomic_store(&e->live->gone, true);
    e->live = NULL;
}

void mg_sandbox_cut_off(struct mg_sandboxes *m, struct mg_sv session)
{
    pthread_mutex_lock(&m->lock);
    bool here = mg_map_get(m->entries, session) != NULL;
    pthread_mutex_unlock(&m->lock);
    struct mg_sandbox_entry *e = here ? entry_lock(m, session) : NULL;
    if (!e)
        return;
    cut_off(e);
    entry_unlock(m, e);
}

static mg_rc destroy_bound(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session, const struct mg_binding *b,
                           struct mg_err *err)
{
    struct mg_plugin *p = NULL;
    char label[MG_LABEL_LEN];
    mg_sandbox_label(m->opts.deployment_id, session, label);
    mg_rc rc = plugin_of(m, b->provider, &p, err);
    mg_hook("sandbox.before_destroy");
    if (rc == MG_OK && p)
        rc = call_destroy_all(p, b->external_id, label, err);
    mg_hook("sandbox.after_destroy");
    if (rc == MG_OK)
        rc = mg_binding_delete(pg, session, b->external_id, err);
    mg_hook("sandbox.after_unbind");
    return rc;
}

/* By the label: an earlier create may have made it without our knowing. */
static mg_rc destroy_intent(struct mg_sandboxes *m, struct mg_pg *pg, const struct mg_intent *in, struct mg_err *err)
{
    struct mg_plugin *p = NULL;
    char label[MG_LABEL_LEN];
    mg_sandbox_label(m->opts.deployment_id, in->session_id, label);
    mg_rc rc = plugin_of(m, in->provider, &p, err);
    if (rc == MG_OK && p)
        rc = call_destroy(p, mg_sv_n("", 0), label, err);
    if (rc == MG_OK && in->in_flight)
        return mg_err_set(err, MG_EUNAVAIL, "a create may still be under way; looking again in at most %d s",
                          MG_SANDBOX_INTENT_GRACE_S);
    return rc == MG_OK ? mg_intent_delete(pg, in->session_id, err) : rc;
}

mg_rc mg_sandbox_destroy(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err own = {0};
    if (!err)
        err = &own;
    struct mg_sandbox_entry *e = entry_lock(m, session_id);
    if (!e)
        return mg_err_set(err, MG_EINVAL, "not a session id");
    struct mg_binding b;
    struct mg_intent in;
    cut_off(e);
    mg_rc rc = mg_binding_get(pg, a, session_id, &b, err);
    if (rc == MG_OK)
        rc = destroy_bound(m, pg, session_id, &b, err);
    if (rc == MG_OK || rc == MG_ENOTFOUND) {
        rc = mg_intent_get(pg, a, session_id, MG_SANDBOX_INTENT_GRACE_S, &in, err);
        if (rc == MG_OK)
            rc = destroy_intent(m, pg, &in, err);
        else if (rc == MG_ENOTFOUND)
            rc = MG_OK;
    }
    entry_unlock(m, e);
    return rc;
}

mg_rc mg_sandbox_end(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_sandbox_entry *e = entry_lock(m, session_id);
    if (!e)
        return mg_err_set(err, MG_EINVAL, "not a session id");
    struct mg_binding b;
    struct mg_plugin *p = NULL;
    char label[MG_LABEL_LEN];
    mg_sandbox_label(m->opts.deployment_id, session_id, label);
    mg_rc rc = mg_binding_get(pg, a, session_id, &b, err);
    if (rc == MG_OK)
        rc = plugin_of(m, b.provider, &p, err);
    if (rc == MG_OK)
        rc = mg_binding_lost(pg, session_id, b.external_id, err);
    if (rc == MG_OK && p) {
        cut_off(e);
        rc = call_destroy_all(p, b.external_id, label, err);
    }
    entry_unlock(m, e);
    return rc;
}
