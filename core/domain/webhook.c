#include "domain/webhook.h"

#include <inttypes.h>

#include "base/rng.h"
#include "crypto/hash.h"
#include "crypto/seal.h"
#include "domain/check.h"
#include "json/write.h"

const char *const mg_webhook_types[] = {
    "session.created",
    "session.pending",
    "session.running",
    "session.idled",
    "session.requires_action",
    "session.updated",
    "session.archived",
    "session.deleted",
    "session.budget_reached",
    "session.status_run_started",
    "session.status_idled",
    "session.status_rescheduled",
    "session.status_terminated",
    "session.thread_created",
    "session.thread_idled",
    "session.thread_terminated",
    "session.outcome_evaluation_ended",
    "agent.created",
    "agent.updated",
    "agent.archived",
    "agent.deleted",
    "environment.created",
    "environment.updated",
    "environment.archived",
    "environment.deleted",
    "deployment.created",
    "deployment.updated",
    "deployment.archived",
    "deployment.deleted",
    "deployment.paused",
    "deployment.unpaused",
    "deployment_run.started",
    "deployment_run.succeeded",
    "deployment_run.failed",
    "memory_store.created",
    "memory_store.archived",
    "memory_store.deleted",
    "vault.created",
    "vault.archived",
    "vault.deleted",
    "vault_credential.created",
    "vault_credential.archived",
    "vault_credential.deleted",
    "vault_credential.refresh_failed",
    NULL,
};

enum { N_TYPES = sizeof(mg_webhook_types) / sizeof(mg_webhook_types[0]) - 1 };
_Static_assert((int)N_TYPES <= (int)MG_WEBHOOK_TYPES_MAX, "\"all\" must fit into one webhook");

mg_rc mg_webhook_types_parse(struct mg_arena *a, struct mg_sv list, struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    bool wanted[N_TYPES] = {false}, all = mg_sv_eqz(list, "all");
    while (!all && list.len) {
        struct mg_sv one = mg_sv_trim(mg_sv_split(&list, ','));
        int at = mg_word_index(mg_webhook_types, one);
        if (at < 0)
            return mg_err_set(err, MG_EINVAL, "'%.*s' is no type of event; there are: all, or some of %s",
                              MG_SV_ARG(mg_shown_id(one)), mg_words(a, mg_webhook_types));
        wanted[at] = true;
    }
    *ret = mg_arena_alloc(a, sizeof(**ret) * N_TYPES);
    *ret_n = 0;
    for (int i = 0; i < N_TYPES; i++)
        if (all || wanted[i])
            (*ret)[(*ret_n)++] = mg_sv_of(mg_webhook_types[i]);
    if (*ret_n)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "name at least one type of event: all, or some of %s",
                      mg_words(a, mg_webhook_types));
}

int64_t mg_webhook_retry_ms(int n)
{
    bool first = n <= 1;
    int64_t low = (first ? MG_WEBHOOK_RETRY_MIN_S : MG_WEBHOOK_RETRY_MIDDLE_S) * 1000LL;
    int64_t high = (first ? MG_WEBHOOK_RETRY_MIDDLE_S : MG_WEBHOOK_RETRY_MAX_S) * 1000LL;
    return low + (int64_t)mg_rng_below((uint64_t)(high - low + 1));
}

mg_rc mg_webhook_body(const struct mg_webhook_event *e, struct mg_sv organization, struct mg_buf *out)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "event");
    mg_jw_kstr(&w, "id", e->id);
    mg_jw_ktime(&w, "created_at", e->created_us);
    mg_jw_key(&w, "data");
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "type", e->type);
    mg_jw_kstr(&w, "id", e->subject);
    mg_jw_kstr(&w, "organization_id", organization);
    mg_jw_kstr(&w, "workspace_id", e->workspace);
    if (e->session_thread.ptr)
        mg_jw_kstr(&w, "session_thread_id", e->session_thread);
    if (e->vault.ptr)
        mg_jw_kstr(&w, "vault_id", e->vault);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}

mg_rc mg_webhook_sign(struct mg_sv key, struct mg_sv id, int64_t timestamp_s, struct mg_sv body, struct mg_buf *out)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(id.len + body.len + 64);
    uint8_t mac[32];
    if (mg_buf_printf(&text, "%.*s.%" PRId64 ".", MG_SV_ARG(id), timestamp_s) < 0 || mg_buf_sv(&text, body) < 0)
        return MG_ETOOBIG;
    mg_hmac_sha256(key, mg_buf_view(&text), mac);
    mg_rc rc = mg_buf_str(out, "v1,");
    return rc < 0 ? rc : mg_base64_encode(out, mg_sv_n((const char *)mac, sizeof(mac)));
}
