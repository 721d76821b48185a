/* One line of the log for each refusal: session, host, port, reason; never a path or a header. A sandbox that has itself
 * refused in a loop gets SAY_BURST lines and SAY_PER_S a second; the next line counts what was left out. */
#include "base/clock.h"
#include "base/log.h"
#include "egress/internal.h"

enum { SAY_BURST = 100, SAY_PER_S = 10 };

static const char *const names[MG_EGRESS_R_COUNT] = {
    [MG_EGRESS_R_HOST] = "host",         [MG_EGRESS_R_PORT] = "port",       [MG_EGRESS_R_ADDRESS] = "address",
    [MG_EGRESS_R_RESOLVE] = "resolve",   [MG_EGRESS_R_CONNECT] = "connect", [MG_EGRESS_R_NAME] = "name",
    [MG_EGRESS_R_PROTOCOL] = "protocol", [MG_EGRESS_R_AUTH] = "auth",       [MG_EGRESS_R_LIMIT] = "limit",
};

static bool may_say(struct mg_egress_door *d)
{
    uint64_t now = mg_now_ns();
    uint64_t earned = d->say_ns ? (now - d->say_ns) / (1000000000u / SAY_PER_S) : SAY_BURST;
    if (earned > 0) {
        d->say_ns = now;
        d->say_left = (unsigned)(d->say_left + earned < SAY_BURST ? d->say_left + earned : SAY_BURST);
    }
    if (d->say_left == 0) {
        d->unsaid++;
        return false;
    }
    d->say_left--;
    return true;
}

void mg_egress_audit(struct mg_egress_conn *c, enum mg_egress_reason why)
{
    struct mg_egress_door *d = c->door;
    c->e->refused[why]++;
    if (!d) {
        mg_log(MG_DEBUG, "egress refused", MG_F_STR("reason", names[why]));
        return;
    }
    d->refused++;
    if (!may_say(d))
        return;
    mg_log(MG_WARN, "egress refused", MG_F_STR("session", d->session[0] ? d->session : d->label),
           MG_F_STR("host", c->target.host), MG_F_INT("port", c->target.port), MG_F_STR("reason", names[why]),
           MG_F_INT("left_out", (int64_t)d->unsaid));
    d->unsaid = 0;
}

void mg_egress_door_farewell(const struct mg_egress_door *d)
{
    mg_log(MG_INFO, "egress closed", MG_F_STR("session", d->session[0] ? d->session : d->label),
           MG_F_INT("connections", (int64_t)d->allowed), MG_F_INT("refused", (int64_t)d->refused),
           MG_F_INT("bytes_out", (int64_t)d->bytes_out), MG_F_INT("bytes_in", (int64_t)d->bytes_in));
}

void mg_egress_metrics(struct mg_egress *e, struct mg_buf *out)
{
    pthread_mutex_lock(&e->lock);
    (void)mg_buf_printf(
        out,
        "# HELP mango_egress_doors Sandboxes that have the filtering proxy.\n# TYPE mango_egress_doors gauge\n"
        "mango_egress_doors %zu\n"
        "# HELP mango_egress_connections Open connections of sandboxes.\n# TYPE mango_egress_connections gauge\n"
        "mango_egress_connections %u\n"
        "# HELP mango_egress_connections_total Connections of sandboxes that were let through.\n"
        "# TYPE mango_egress_connections_total counter\nmango_egress_connections_total %llu\n"
        "# HELP mango_egress_bytes_total Bytes of sandboxes that went through.\n"
        "# TYPE mango_egress_bytes_total counter\nmango_egress_bytes_total{direction=\"out\"} %llu\n"
        "mango_egress_bytes_total{direction=\"in\"} %llu\n"
        "# HELP mango_egress_refused_total Refusals.\n# TYPE mango_egress_refused_total counter\n",
        mg_map_len(e->doors), e->n_conns, (unsigned long long)e->total, (unsigned long long)e->bytes_out,
        (unsigned long long)e->bytes_in);
    for (int i = 0; i < MG_EGRESS_R_COUNT; i++)
        (void)mg_buf_printf(out, "mango_egress_refused_total{reason=\"%s\"} %llu\n", names[i],
                            (unsigned long long)e->refused[i]);
    pthread_mutex_unlock(&e->lock);
}
