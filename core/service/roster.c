#include "service/roster.h"

#include <stdlib.h>
#include <string.h>

#include "domain/egress.h"
#include "store/agent.h"

/* One reference with the agent that it names. */
struct member {
    struct mg_roster_ref *ref;
    struct mg_agent_row row;
    struct mg_agent agent;
    struct mg_sv name;
};

static int by_id(const void *x, const void *y)
{
    const struct member *a = x, *b = y;
    size_t n = a->ref->id.len < b->ref->id.len ? a->ref->id.len : b->ref->id.len;
    int order = n ? memcmp(a->ref->id.ptr, b->ref->id.ptr, n) : 0;
    return order ? order : (a->ref->id.len > b->ref->id.len) - (a->ref->id.len < b->ref->id.len);
}

static int by_place(const void *x, const void *y)
{
    const struct member *a = x, *b = y;
    return a->ref < b->ref ? -1 : a->ref > b->ref;
}

/* Reads and locks one member. What is wrong with it is an error of the body, which names its place. */
static mg_rc member_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct member *m,
                         struct mg_err *err)
{
    struct mg_err why = {0};
    mg_rc rc = mg_agent_share(a, t, workspace, m->ref->id, m->ref->version, &m->row, &why);
    if (rc == MG_ENOTFOUND)
        return mg_err_set(err, MG_EINVAL, "%s: %s", m->ref->place, why.text);
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    if (m->row.archived_us != INT64_MIN)
        return mg_err_set(err, MG_EINVAL, "%s: agent '%.*s' is archived; name another one", m->ref->place,
                          MG_SV_ARG(m->ref->id));
    rc = mg_agent_load(a, m->row.body, &m->agent, err);
    if (rc >= 0 && !mg_sv_eqz(m->agent.multiagent, "null"))
        rc = mg_err_set(err, MG_EINVAL,
                        "%s: agent '%.*s' has a multiagent configuration of its own; an agent in a roster may not give "
                        "tasks itself",
                        m->ref->place, MG_SV_ARG(m->ref->id));
    m->ref->version = m->row.version;
    m->name = m->agent.name;
    return rc;
}

/* Distinct agents, and distinct names, since a coordinator names whom it wants. */
static mg_rc check_distinct(const struct member *m, int n, struct mg_err *err)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            bool same = m[i].ref->self ? m[k].ref->self : !m[k].ref->self && mg_sv_eq(m[i].ref->id, m[k].ref->id);
            if (same)
                return mg_err_set(err, MG_EINVAL, "%s: the same agent as %s; name each agent once", m[i].ref->place,
                                  m[k].ref->place);
            if (mg_sv_eq(m[i].name, m[k].name))
                return mg_err_set(err, MG_EINVAL,
                                  "%s: has the same name as %s, %.*s; agents of a roster are called by their names",
                                  m[i].ref->place, m[k].ref->place, MG_SV_ARG(m[i].name));
        }
    return MG_OK;
}

/* Events and runs know the advisor by its name. */
static mg_rc check_advisor_name(struct mg_arena *a, const struct member *m, int n, struct mg_err *err)
{
    for (int i = 0; i < n; i++) {
        struct mg_json *name;
        if (mg_json_parse(a, m[i].name, &mg_json_raw_limits, &name, NULL) == MG_OK &&
            mg_sv_eqz(mg_json_str(a, name), MG_ADVISOR_NAME))
            return mg_err_set(err, MG_EINVAL,
                              "%s: no agent of a roster may be called " MG_ADVISOR_NAME ", the advisor is",
                              m[i].ref->place);
    }
    return MG_OK;
}

/* All members, in the roster's order. */
static mg_rc members_lock(struct mg_arena *a, struct mg_txn *t, const struct mg_roster_owner *owner,
                          struct mg_multiagent *roster, const struct mg_agent *self, struct member *m,
                          struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < roster->n; i++) {
        struct mg_roster_ref *ref = &roster->refs[i];
        m[i] = (struct member){.ref = ref, .name = self->name};
        ref->self |= mg_sv_eq(ref->id, owner->id);
        if (ref->self) {
            ref->id = owner->id;
            ref->version = owner->version;
        }
    }
    qsort(m, (size_t)roster->n, sizeof(*m), by_id);
    for (int i = 0; rc >= 0 && i < roster->n; i++)
        if (!m[i].ref->self)
            rc = member_lock(a, t, owner->workspace, &m[i], err);
    qsort(m, (size_t)roster->n, sizeof(*m), by_place);
    if (rc >= 0)
        rc = check_advisor_name(a, m, roster->n, err);
    return rc < 0 ? rc : check_distinct(m, roster->n, err);
}

static struct mg_sv references(struct mg_arena *a, const struct mg_multiagent *roster)
{
    struct mg_sv entries[MG_ROSTER_MAX];
    for (int i = 0; i < roster->n; i++)
        entries[i] = mg_roster_entry(a, roster->refs[i].id, roster->refs[i].version);
    return mg_multiagent_format(a, roster, entries);
}

mg_rc mg_roster_pin(struct mg_arena *a, struct mg_txn *t, const struct mg_roster_owner *owner, struct mg_agent *x,
                    struct mg_err *err)
{
    struct member m[MG_ROSTER_MAX];
    if (!x->roster)
        return MG_OK;
    mg_rc rc = members_lock(a, t, owner, x->roster, x, m, err);
    if (rc >= 0)
        x->multiagent = references(a, x->roster);
    return rc;
}

mg_rc mg_roster_repin(struct mg_arena *a, const struct mg_roster_owner *owner, struct mg_sv *multiagent,
                      struct mg_err *err)
{
    struct mg_multiagent m;
    bool any = false;
    mg_rc rc = mg_multiagent_load(a, *multiagent, &m, err);
    for (int i = 0; rc >= 0 && i < m.n; i++)
        if (mg_sv_eq(m.refs[i].id, owner->id)) {
            m.refs[i].version = owner->version;
            any = true;
        }
    if (any)
        *multiagent = references(a, &m);
    return rc;
}

mg_rc mg_roster_expand(struct mg_arena *a, struct mg_txn *t, const struct mg_roster_owner *owner,
                       struct mg_sv env_config, struct mg_agent *x, bool *ret_any, struct mg_err *err)
{
    struct mg_multiagent roster;
    struct member m[MG_ROSTER_MAX];
    struct mg_sv entries[MG_ROSTER_MAX];
    *ret_any = false;
    if (mg_sv_eqz(x->multiagent, "null"))
        return MG_OK;
    mg_rc rc = mg_multiagent_load(a, x->multiagent, &roster, err);
    if (rc >= 0)
        rc = members_lock(a, t, owner, &roster, x, m, err);
    for (int i = 0; rc >= 0 && i < roster.n; i++) {
        const struct mg_agent *agent = m[i].ref->self ? x : &m[i].agent;
        rc = mg_egress_check_servers(a, env_config, agent->mcp_servers, err);
        if (rc < 0)
            return mg_err_wrap(err, rc, "agent.multiagent");
        entries[i] = mg_agent_thread_format(a, m[i].ref->id, m[i].ref->version, agent);
    }
    if (rc >= 0)
        x->multiagent = mg_multiagent_format(a, &roster, entries);
    *ret_any = rc >= 0 && (roster.n > 0 || roster.inline_agents || roster.advisor.len);
    return rc;
}
