/* Labels cannot be turned back into sessions: the few that are present are tried. */
#include "sandbox/internal.h"

struct search {
    struct mg_sandboxes *m;
    struct mg_sv label;
    struct mg_id *ret;
    bool found;
};

static void try_one(void *ctx, struct mg_sv session, void *value)
{
    struct search *s = ctx;
    const struct mg_sandbox_entry *e = value;
    char label[MG_LABEL_LEN];
    if (s->found)
        return;
    mg_sandbox_label(s->m->opts.deployment_id, session, label);
    s->found = mg_sv_eqz(s->label, label);
    if (s->found)
        *s->ret = e->session;
}

bool mg_sandbox_session_of(struct mg_sandboxes *m, struct mg_sv label, struct mg_id *ret)
{
    struct search s = {.m = m, .label = label, .ret = ret};
    pthread_mutex_lock(&m->lock);
    mg_map_each(m->entries, try_one, &s);
    pthread_mutex_unlock(&m->lock);
    return s.found;
}
