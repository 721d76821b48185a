/* /healthz, /readyz, /metrics, /openapi.json, and the answer for what is not there. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "api/api.h"
#include "api/routes.h"
#include "base/clock.h"
#include "conf/conf.h"
#include "egress/proxy.h"
#include "events/notify.h"
#include "plugin/counters.h"
#include "run/engine.h"
#include "sandbox/health.h"
#include "run/work.h"
#include "sandbox/manager.h"
#include "service/webhook.h"
#include "store/deployment.h"
#include "store/node.h"

#ifndef MANGO_VERSION /* the build gives it */
#define MANGO_VERSION PACKAGE_VERSION
#endif

mg_rc mg_get_health(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    (void)req;
    (void)err;
    return mg_buf_str(&res->body, "{\"status\":\"ok\",\"version\":\"" MANGO_VERSION "\"}");
}

mg_rc mg_get_ready(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    mg_rc rc = mg_deployment_probe(req->pg, err);
    if (rc < 0)
        return mg_err_set(err, MG_EUNAVAIL, "not ready: the database takes no write");
    const struct mg_app *app = mg_req_app(req);
    (void)mg_buf_str(&res->body, "{\"status\":\"ready\"");
    if (app->sandboxes) { /* a backend that is down makes its turns wait; the server serves */
        (void)mg_buf_str(&res->body, ",\"sandboxes\":");
        mg_health_json(app->sandboxes, &res->body);
    }
    return mg_buf_str(&res->body, "}");
}

/* ---- metrics ---- */

static void metric(struct mg_buf *out, const char *name, const char *type, const char *help, double value)
{
    (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, value);
}

static int64_t resident_bytes(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* ".", ".." and the folder itself */
}

static void process_metrics(struct mg_buf *out, const struct mg_app *app)
{
    (void)mg_buf_printf(out,
                        "# HELP mango_build_info The version that runs.\n# TYPE mango_build_info "
                        "gauge\nmango_build_info{version=\"%s\"} 1\n",
                        MANGO_VERSION);
    metric(out, "process_resident_memory_bytes", "gauge", "Memory of the process in bytes.", (double)resident_bytes());
    metric(out, "process_open_fds", "gauge", "Open file descriptors.", open_descriptors());
    metric(out, "process_start_time_seconds", "gauge", "Start of the process since 1970.",
           (double)app->started_us / 1e6);
}

static void notify_metrics(struct mg_buf *out, struct mg_notify *notify)
{
    struct mg_notify_stats s;
    mg_notify_stats(notify, &s);
    metric(out, "mango_wakeups_sent_total", "counter", "Wake-ups handed to NOTIFY.", (double)s.sent);
    metric(out, "mango_wakeups_received_total", "counter", "Wake-ups from other nodes.", (double)s.received);
    metric(out, "mango_wakeup_repairs_total", "counter", "Times that wake-ups may have been lost.", (double)s.repairs);
    metric(out, "mango_notify_reconnects_total", "counter", "Connections of the listener after the first.",
           (double)s.reconnects);
    metric(out, "mango_notification_queue_usage", "gauge", "pg_notification_queue_usage(), 0 to 1.", s.queue_usage);
    metric(out, "mango_notify_connected", "gauge", "1 while the listener is connected.", s.connected);
}

mg_rc mg_get_metrics(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_app *app = mg_req_app(req);
    if (!mg_conf_bool(app->conf, MG_OPT_METRICS_PUBLIC)) {
        mg_rc rc = mg_auth(req, NULL, err);
        if (rc < 0)
            return rc;
    }
    res->content_type = "text/plain; version=0.0.4; charset=utf-8";
    process_metrics(&res->body, app);
    mg_work_metrics(app->engine, req->pg, &res->body);
    mg_engine_metrics(app->engine, &res->body);
    if (app->egress)
        mg_egress_metrics(app->egress, &res->body);
    if (app->registry)
        mg_registry_metrics(app->registry, &res->body);
    mg_waiting_metrics(req->pg, &res->body);
    mg_transaction_metrics(req->pg, &res->body);
    if (app->sandboxes) {
        mg_sandboxes_metrics(app->sandboxes, &res->body);
        mg_health_metrics(app->sandboxes, &res->body);
    }
    mg_webhooks_metrics(app->webhooks, req->pg, &res->body);
    if (app->notify)
        notify_metrics(&res->body, app->notify);
    if (app->http)
        mg_http_metrics(app->http, &res->body);
    return MG_OK;
}

/* ---- description, absence ---- */

mg_rc mg_get_openapi(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    (void)req;
    (void)err;
    return mg_openapi_write(&res->body, mg_routes);
}

mg_rc mg_get_absent(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    (void)res;
    struct mg_sv what = req->seg[1];
    if (req->n_seg > 3 && (mg_sv_eqz(req->seg[1], "environments") || mg_sv_eqz(req->seg[1], "sessions")))
        what = mg_arena_printf(req->arena, "%.*s/.../%.*s", MG_SV_ARG(req->seg[1]), MG_SV_ARG(req->seg[3]));
    return mg_err_set(err, MG_ENOTFOUND, "/v1/%.*s is not part of this build; see /openapi.json for what is",
                      MG_SV_ARG(what));
}
