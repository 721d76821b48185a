#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/cli-client.h"
#include "cmd/cli-doctor.h"
#include "cmd/cli-loop.h"
#include "cmd/cli-services.h"
#include "git/git.h"
#include "net/loop.h"
#include "plugin/registry.h"

enum {
    FILES_LOW = 8192, /* descriptors: one for each stream */
    MODEL_MS = 15000,
    HEALTH_MS = 5000,
};

void mg_doctor_limits(struct mg_doctor *d)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    if (r.rlim_max < FILES_LOW)
        mg_doctor_say(d, MG_FINDING_WARN, "limits",
                      "raise it: LimitNOFILE= of the systemd unit, or /etc/security/limits.conf",
                      "at most %llu open files for a process started here; each stream needs one",
                      (unsigned long long)r.rlim_max);
    else
        mg_doctor_say(d, MG_FINDING_OK, "limits", NULL, "%llu open files", (unsigned long long)r.rlim_max);
}

void mg_doctor_loop(struct mg_doctor *d)
{
    if (mg_cli_loop_ok())
        mg_doctor_say(d, MG_FINDING_OK, "loop", NULL, "libwebsockets has its libev loop");
    else
        mg_doctor_say(d, MG_FINDING_BAD, "loop", "apt-get install libwebsockets-evlib-ev",
                      "libwebsockets cannot start its libev loop: mangod refuses to start without it");
}

/* Sessions with sandboxes alone have repositories. */
void mg_doctor_git(struct mg_doctor *d)
{
    struct mg_err err = {0};

    if (!mg_conf_strn(d->conf, MG_OPT_SANDBOX))
        return;
    if (mg_git_here(&err) < 0)
        mg_doctor_say(d, MG_FINDING_WARN, "git",
                      "apt-get install git, unless no session shall have a github_repository", "%s", err.text);
    else
        mg_doctor_say(d, MG_FINDING_OK, "git", NULL, "git is here, for the repositories of sessions");
}

/* ---- the sandbox ---- */

static void check_backend(struct mg_doctor *d, struct mg_plugin *p)
{
    struct mg_err err = {0};
    struct mango_call call = mg_plugin_call(mg_now_ns() + (uint64_t)HEALTH_MS * 1000000, NULL, &err);
    bool network = mg_conf_strn(d->conf, MG_OPT_MODEL_BASE_URL) != NULL;

    if (p->sandbox->health(p->ctx, &call) != MANGO_OK)
        mg_doctor_say(d, MG_FINDING_BAD, "sandbox", "see the plugin's page in docs/",
                      "%s is loaded but does not answer: %s", p->name, err.text);
    else if (!mg_plugin_isolated(p) && network && !mg_conf_bool(d->conf, MG_OPT_ALLOW_UNSAFE_LOCAL_SANDBOX))
        mg_doctor_say(d, MG_FINDING_BAD, "sandbox",
                      "choose an isolating backend, or set MANGO_ALLOW_UNSAFE_LOCAL_SANDBOX=1 if you accept that",
                      "%s is no isolation boundary, and the model is on the network: mangod refuses this pair",
                      p->name);
    else if (!mg_plugin_isolated(p))
        mg_doctor_say(d, MG_FINDING_WARN, "sandbox",
                      "fine for the offline model and for trying out; for anything else choose an isolating backend",
                      "%s works, and is no isolation boundary: commands run as this host's user", p->name);
    else
        mg_doctor_say(d, MG_FINDING_OK, "sandbox", NULL, "%s %s works", p->name, p->desc->version);
}

void mg_doctor_plugins(struct mg_doctor *d)
{
    const char *dir = mg_conf_strn(d->conf, MG_OPT_PLUGIN_DIR), *name = mg_conf_strn(d->conf, MG_OPT_SANDBOX);
    struct mg_plugin_services services;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf config = MG_BUF_INIT(1024 * 1024);

    dir = dir ? dir : MANGO_PLUGINDIR;
    if (access(dir, R_OK | X_OK) < 0) {
        mg_doctor_say(d, name ? MG_FINDING_BAD : MG_FINDING_WARN, "plugins", "make install, or set MANGO_PLUGIN_DIR",
                      "the plugin folder %s cannot be read", dir);
        return;
    }
    struct mg_sv names = mg_plugin_names(d->cli->arena, dir);
    mg_doctor_say(d, MG_FINDING_OK, "plugins", NULL, "%s has: %.*s", dir, MG_SV_ARG(names));
    if (!name) {
        mg_doctor_say(d, MG_FINDING_WARN, "sandbox",
                      "set MANGO_SANDBOX to one of the plugins' names, unless only workers run tools",
                      "no backend is chosen: cloud environments are refused");
        return;
    }
    if (mg_cli_services(d->conf, &services, &err) < 0) {
        mg_doctor_say(d, MG_FINDING_BAD, "plugins", "see MANGO_PLUGIN_PROXY and MANGO_PLUGIN_CA_FILE", "%s", err.text);
        return;
    }
    struct mg_registry *r = mg_registry_new(dir, &services);
    mg_rc rc = mg_conf_plugin_json(d->conf, name, &config);
    if (rc == MG_OK)
        rc = mg_registry_get(r, name, "MANGO_SANDBOX", mg_buf_view(&config), &p, &err);
    if (rc < 0 || !p)
        mg_doctor_say(d, MG_FINDING_BAD, "sandbox", "see the plugin's page in docs/", "%s", err.text);
    else
        check_backend(d, p);
    mg_registry_free(r);
    mg_cli_services_done(&services);
}

/* ---- the model ---- */

static void judge_model(struct mg_doctor *d, mg_rc rc, int status, const char *why)
{
    const char *url = mg_conf_str(d->conf, MG_OPT_MODEL_BASE_URL);

    if (rc < 0)
        mg_doctor_say(d, MG_FINDING_BAD, "model",
                      "check MANGO_MODEL_BASE_URL, MANGO_MODEL_PROXY, MANGO_MODEL_CA_FILE and the firewall",
                      "%s is not reached: %s", url, why);
    else if (status == 401 || status == 403)
        mg_doctor_say(d, MG_FINDING_BAD, "model", "check MANGO_MODEL_API_KEY and MANGO_MODEL_AUTH",
                      "%s refuses the key (%d)", url, status);
    else if (status >= 500)
        mg_doctor_say(d, MG_FINDING_WARN, "model", "the endpoint has a fault of its own; try again later",
                      "%s answers %d", url, status);
    else
        mg_doctor_say(d, MG_FINDING_OK, "model", NULL, "%s answers (%d)", url, status);
}

void mg_doctor_model(struct mg_doctor *d)
{
    const char *url = mg_conf_strn(d->conf, MG_OPT_MODEL_BASE_URL), *key = mg_conf_str(d->conf, MG_OPT_MODEL_API_KEY);
    bool bearer = strcmp(mg_conf_str(d->conf, MG_OPT_MODEL_AUTH), "bearer") == 0;
    const struct mg_net_opts o = {.name = "doctor",
                                  .ca_file = mg_conf_strn(d->conf, MG_OPT_MODEL_CA_FILE),
                                  .proxy = mg_conf_strn(d->conf, MG_OPT_MODEL_PROXY)};
    mg_auto(net_answer) struct mg_net_answer answer = {0};
    struct mg_net *net = NULL;
    struct mg_err err = {0};

    if (!url) {
        mg_doctor_say(d, MG_FINDING_OK, "model", NULL, "the offline model (MANGO_MODEL_BASE_URL is not set)");
        return;
    }
    struct mg_sv base = mg_sv_of(url);
    while (base.len && base.ptr[base.len - 1] == '/')
        base.len--;
    struct mg_sv value = mg_arena_printf(d->cli->arena, "%s%s", bearer ? "Bearer " : "", key);
    const struct mg_net_header headers[] = {{mg_sv_of(bearer ? "authorization" : "x-api-key"), value},
                                            {MG_SV("anthropic-version"), MG_SV("2023-06-01")}};
    const struct mg_net_req req = {.url = mg_arena_printf(d->cli->arena, "%.*s/v1/models?limit=1", MG_SV_ARG(base)),
                                   .headers = headers,
                                   .n_headers = 2,
                                   .total_ms = MODEL_MS};
    mg_rc rc = mg_net_open(&o, &net, &err);
    if (rc == MG_OK)
        rc = mg_net_call(net, &req, 0, NULL, &answer, &err);
    judge_model(d, rc, answer.status, err.text);
    if (rc == MG_OK && answer.status == 200)
        d->models = mg_arena_strdup(d->cli->arena, mg_buf_view(&answer.body));
    mg_net_close(net);
}

/* ---- the running server ---- */

void mg_doctor_server(struct mg_doctor *d)
{
    struct mg_err err = {0};
    struct mg_sv base = mg_cli_base(d->cli);
    const struct mg_json *answer = NULL;
    int status = 0;
    mg_rc rc = mg_cli_try(d->cli, "GET", "/readyz", MG_SV(""), &answer, &status, &err);

    if (rc == MG_OK)
        mg_doctor_say(d, MG_FINDING_OK, "server", NULL, "%.*s is ready", MG_SV_ARG(base));
    else if (status)
        mg_doctor_say(d, MG_FINDING_BAD, "server", "its log says why; the other lines here may, too",
                      "%.*s is not ready: %s", MG_SV_ARG(base), err.text);
    else
        mg_doctor_say(d, MG_FINDING_WARN, "server", "start mangod, or name its address in MANGO_BASE_URL",
                      "nothing answers at %.*s", MG_SV_ARG(base));
    mg_cli_close(d->cli);
}
