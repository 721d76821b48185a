#include "cmd/cli-client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "domain/id.h"
#include "net/loop.h"

enum {
    CALL_MS = 60000,
    CONNECT_MS = 10000,
    KEY_MAX = 512, /* bytes of a key file */
};

static const char DEFAULT_BASE[] = "http://127.0.0.1:8080";

static const char *env(const char *name)
{
    const char *v = secure_getenv(name);

    return v && *v ? v : NULL;
}

struct mg_sv mg_cli_base(const struct mg_cli *c)
{
    const char *url = mg_cli_get(c, "url");
    struct mg_sv s = mg_sv_of(url && *url ? url : env("MANGO_BASE_URL") ? env("MANGO_BASE_URL") : DEFAULT_BASE);

    while (s.len && s.ptr[s.len - 1] == '/')
        s.len--;
    return s;
}

mg_rc mg_cli_url_parse(struct mg_sv text, struct mg_cli_url *ret, struct mg_err *err)
{
    struct mg_sv rest = text, host;
    int64_t port = 0;

    *ret = (struct mg_cli_url){.tls = mg_sv_starts(text, "https://")};
    if (!ret->tls && !mg_sv_starts(text, "http://"))
        return mg_err_set(err, MG_EINVAL, "the address %.*s must start with http:// or https://", MG_SV_ARG(text));
    rest = mg_sv_from(text, ret->tls ? 8 : 7);
    struct mg_sv path = rest, authority = mg_sv_split(&path, '/');
    if (mg_sv_find(authority, '@') < authority.len)
        return mg_err_set(err, MG_EINVAL, "the address must not hold a user or password: keys go into MANGO_API_KEY");
    rest = authority;
    if (mg_sv_starts(authority, "[")) {
        rest = mg_sv_from(authority, 1);
        host = mg_sv_split(&rest, ']');
        if (mg_sv_starts(rest, ":"))
            rest = mg_sv_from(rest, 1);
    } else {
        host = mg_sv_split(&rest, ':');
    }
    bool has_port = rest.len > 0;
    if (host.len == 0 || host.len >= sizeof(ret->host) || path.len + 2 > sizeof(ret->prefix) ||
        (has_port && (!mg_sv_to_i64(rest, &port) || port < 1 || port > 65535)))
        return mg_err_set(err, MG_EINVAL, "the address %.*s is not right: use http://HOST:PORT", MG_SV_ARG(text));
    ret->port = has_port ? (int)port : ret->tls ? 443 : 80;
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", MG_SV_ARG(host));
    (void)snprintf(ret->prefix, sizeof(ret->prefix), "%s%.*s", path.len ? "/" : "", MG_SV_ARG(path));
    return MG_OK;
}

static char *read_key_file(const char *path)
{
    char text[KEY_MAX + 1];
    FILE *f = fopen(path, "re");

    if (!f) {
        (void)mg_cli_fail("the key file %s cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    size_t n = fread(text, 1, KEY_MAX, f);
    (void)fclose(f);
    struct mg_sv key = mg_sv_trim(mg_sv_n(text, n));
    char *copy = key.len ? mg_xstrndup(key.ptr, key.len) : NULL;
    mg_wipe(text, sizeof(text));
    if (!copy)
        (void)mg_cli_fail("the key file %s is empty", path);
    return copy;
}

const char *mg_cli_key(struct mg_cli *c)
{
    const char *file = mg_cli_get(c, "key-file");

    if (c->api_key)
        return c->api_key;
    if (file)
        c->api_key = read_key_file(file);
    else if (env("MANGO_API_KEY"))
        c->api_key = mg_xstrdup(env("MANGO_API_KEY"));
    else
        (void)mg_cli_fail("no API key: set MANGO_API_KEY, or give --key-file FILE. `mango api-key create` on the "
                          "server's machine makes one");
    return c->api_key;
}

static mg_rc open_net(struct mg_cli *c, struct mg_err *err)
{
    const struct mg_net_opts o = {.name = "mango", .ca_file = env("MANGO_CA_FILE")};

    return c->net ? MG_OK : mg_net_open(&o, &c->net, err);
}

/* Text of the API's error object: "not_found_error: ... (request req_...)". */
static mg_rc api_error(struct mg_cli *c, int status, struct mg_sv body, const struct mg_json *v, struct mg_err *err)
{
    const struct mg_json *e = mg_json_get(v, "error");
    struct mg_sv type = mg_json_get_str(c->arena, e, "type"), message = mg_json_get_str(c->arena, e, "message");
    struct mg_sv id = mg_json_get_str(c->arena, v, "request_id");
    mg_rc rc = status == 404 ? MG_ENOTFOUND : status == 401 ? MG_EAUTH : status == 409 ? MG_ECONFLICT : MG_EINVAL;

    if (!message.len)
        return mg_err_set(err, MG_EIO, "the server answered %d, and not as Mango does: %.*s", status,
                          (int)(body.len < 200 ? body.len : 200), body.ptr);
    return mg_err_set(err, rc, "%d %.*s: %.*s%s%.*s%s", status, MG_SV_ARG(type), MG_SV_ARG(message),
                      id.len ? " (request " : "", MG_SV_ARG(id), id.len ? ")" : "");
}

mg_rc mg_cli_try(struct mg_cli *c, const char *method, const char *path, struct mg_sv body, const struct mg_json **ret,
                 int *ret_status, struct mg_err *err)
{
    mg_auto(net_answer) struct mg_net_answer a = {0};
    struct mg_sv base = mg_cli_base(c), url = mg_arena_printf(c->arena, "%.*s%s", MG_SV_ARG(base), path);
    const struct mg_net_header headers[] = {
        {MG_SV("x-api-key"), mg_sv_of(c->api_key ? c->api_key : "")},
        {MG_SV("content-type"), MG_SV("application/json")},
        {MG_SV("user-agent"), MG_SV("mango/" MANGO_VERSION)},
    };
    const struct mg_net_req req = {.method = mg_sv_of(method),
                                   .url = url,
                                   .headers = headers,
                                   .n_headers = 3,
                                   .body = body,
                                   .connect_ms = CONNECT_MS,
                                   .total_ms = CALL_MS,
                                   .max_bytes = MG_CLI_BODY_MAX};
    struct mg_json *v = NULL;

    *ret_status = 0;
    mg_rc rc = open_net(c, err);
    if (rc == MG_OK)
        rc = mg_net_call(c->net, &req, 0, NULL, &a, err);
    if (rc < 0)
        return rc;
    *ret_status = a.status;
    struct mg_sv text = mg_arena_sv(c->arena, mg_buf_view(&a.body));
    rc = mg_json_parse(c->arena, text, &mg_json_raw_limits, &v, NULL);
    if (a.status < 200 || a.status > 299)
        return api_error(c, a.status, text, v, err);
    if (rc < 0)
        return mg_err_set(err, MG_EIO, "the answer of the server is not JSON");
    if (ret)
        *ret = v;
    return MG_OK;
}

int mg_cli_call(struct mg_cli *c, const char *method, const char *path, struct mg_sv body, const struct mg_json **ret)
{
    struct mg_err err = {0};
    int status = 0;
    struct mg_sv base = mg_cli_base(c);

    if (!mg_cli_key(c))
        return MG_CLI_ERROR;
    if (mg_cli_try(c, method, path, body, ret, &status, &err) == MG_OK)
        return MG_CLI_OK;
    if (status)
        return mg_cli_fail("%s", err.text);
    return mg_cli_fail(
        "%.*s does not answer: %s. Is mangod running there? MANGO_BASE_URL or --url name another address",
        MG_SV_ARG(base), err.text);
}

bool mg_cli_id_ok(const struct mg_cli *c, const char *what, const char *id)
{
    struct mg_id parsed;

    if (*id && mg_id_from(mg_sv_of(id), &parsed))
        return true;
    (void)mg_cli_usage(c, "%s must be an id of letters, digits, _ and -; got \"%s\"", what, id);
    return false;
}

void mg_cli_close(struct mg_cli *c)
{
    mg_net_close(c->net);
    c->net = NULL;
    if (c->api_key) {
        mg_wipe(c->api_key, strlen(c->api_key));
        free(c->api_key);
        c->api_key = NULL;
    }
}
