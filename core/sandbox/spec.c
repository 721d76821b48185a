#include "sandbox/spec.h"

#include "crypto/hash.h"
#include "json/json.h"
#include "json/write.h"

enum {
    SPEC_TEXT_MAX = 1024 * 1024, /* bytes; the config it comes from is bounded by the API's body limit */
    HOSTS_MAX = 1000,
};

#define PACKAGES_MARK "|packages="

static const char *const managers[] = {"apt", "cargo", "gem", "go", "npm", "pip"};
enum { N_MANAGERS = sizeof(managers) / sizeof(managers[0]) };

static bool any_package(const struct mg_json *packages)
{
    for (int i = 0; i < N_MANAGERS; i++) {
        const struct mg_json *list = mg_json_get(packages, managers[i]);
        if (mg_json_is(list, MG_JSON_ARRAY) && list->n > 0)
            return true;
    }
    return false;
}

static void write_packages(struct mg_jw *w, const struct mg_json *packages)
{
    mg_jw_obj(w);
    for (int i = 0; i < N_MANAGERS; i++) {
        const struct mg_json *list = mg_json_get(packages, managers[i]);
        if (mg_json_is(list, MG_JSON_ARRAY) && list->n > 0)
            mg_jw_kraw(w, managers[i], list->raw);
    }
    mg_jw_obj_end(w);
}

static void write_network(struct mg_jw *w, const struct mg_json *networking, struct mg_arena *a)
{
    bool limited = mg_sv_eqz(mg_json_get_str(a, networking, "type"), "limited");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "mode", limited ? "limited" : "open");
    const struct mg_json *hosts = mg_json_get(networking, "allowed_hosts");
    if (limited && mg_json_is(hosts, MG_JSON_ARRAY))
        mg_jw_kraw(w, "hosts", hosts->raw);
    mg_jw_obj_end(w);
}

mg_rc mg_spec_from_config(struct mg_arena *a, struct mg_sv config, struct mg_sv image, struct mg_spec *ret,
                          struct mg_err *err)
{
    struct mg_json *root;
    mg_rc rc = mg_json_parse(a, config, &mg_json_raw_limits, &root, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "environment config");
    const struct mg_json *packages = mg_json_get(root, "packages");
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(SPEC_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "image", image);
    mg_jw_key(&w, "network");
    write_network(&w, mg_json_get(root, "networking"), a);
    if (any_package(packages)) {
        mg_jw_key(&w, "packages");
        write_packages(&w, packages);
    }
    mg_jw_obj_end(&w);
    if (!mg_buf_ok(&out))
        return mg_err_set(err, MG_ETOOBIG, "environment config: more than %d bytes", SPEC_TEXT_MAX);
    return mg_spec_from_text(a, mg_buf_view(&out), ret, err);
}

static void read_hosts(struct mg_arena *a, const struct mg_json *hosts, struct mango_network *net)
{
    if (!mg_json_is(hosts, MG_JSON_ARRAY))
        return;
    uint32_t n = hosts->n < HOSTS_MAX ? hosts->n : HOSTS_MAX;
    struct mango_sv *list = mg_arena_alloc(a, n * sizeof(*list) + 1);
    uint64_t used = 0;
    for (const struct mg_json *h = hosts->child; h && used < n; h = h->next) {
        if (!mg_json_is(h, MG_JSON_STRING))
            continue;
        struct mg_sv s = mg_json_str(a, h);
        list[used++] = (struct mango_sv){s.ptr, s.len};
    }
    net->hosts = list;
    net->n_hosts = used;
}

static struct mg_sv hash_of(struct mg_arena *a, struct mg_sv text, struct mg_sv packages)
{
    char whole[MG_SHA256_HEX], part[MG_SHA256_HEX];
    mg_sha256_hex(text, whole);
    if (packages.len == 0)
        return mg_arena_printf(a, "sha256:%s", whole);
    mg_sha256_hex(packages, part);
    return mg_arena_printf(a, "sha256:%s" PACKAGES_MARK "sha256:%s", whole, part);
}

mg_rc mg_spec_from_text(struct mg_arena *a, struct mg_sv text, struct mg_spec *ret, struct mg_err *err)
{
    struct mg_json *root;
    *ret = (struct mg_spec){.text = mg_arena_sv(a, text)};
    mg_rc rc = mg_json_parse(a, ret->text, &mg_json_raw_limits, &root, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "stored sandbox spec");
    const struct mg_json *net = mg_json_get(root, "network");
    struct mg_sv image = mg_json_get_str(a, root, "image");
    ret->packages = mg_json_get_raw(root, "packages");
    ret->hash = hash_of(a, ret->text, ret->packages);
    ret->network = (struct mango_network){.struct_size = sizeof(ret->network), .mode = MANGO_NET_OPEN};
    if (mg_sv_eqz(mg_json_get_str(a, net, "mode"), "limited")) {
        ret->network.mode = MANGO_NET_LIMITED;
        read_hosts(a, mg_json_get(net, "hosts"), &ret->network);
    }
    ret->abi = (struct mango_sandbox_spec){.struct_size = sizeof(ret->abi), .image = {image.ptr, image.len}};
    return MG_OK;
}

/* With a dot, and more than the digits of an address. */
static bool is_full_name(struct mg_sv host)
{
    bool dot = false, number = true;
    for (size_t i = 0; i < host.len; i++) {
        dot |= host.ptr[i] == '.';
        number &= host.ptr[i] == '.' || (host.ptr[i] >= '0' && host.ptr[i] <= '9');
    }
    return dot && !number;
}

static mg_rc check_hosts(const struct mango_network *net, const struct mg_plugin *backend, struct mg_err *err)
{
    if (!mg_plugin_can(backend, MANGO_TRAIT_HOST_NAMES))
        return MG_OK;
    for (uint64_t i = 0; i < net->n_hosts; i++) {
        struct mg_sv host = {net->hosts[i].ptr, net->hosts[i].len};
        if (!is_full_name(host))
            return mg_err_set(
                err, MG_EINVAL,
                "config.networking.allowed_hosts[%u]: the sandbox backend '%s' can allow whole host names "
                "only, not '%.*s'; name the host with its domain, or use another backend",
                (unsigned)i, backend->name, MG_SV_ARG(host));
    }
    return MG_OK;
}

mg_rc mg_spec_check(const struct mg_spec *spec, const struct mg_plugin *backend, struct mg_err *err)
{
    if (spec->packages.len && !mg_plugin_can(backend, MANGO_CAP_PACKAGES))
        return mg_err_set(err, MG_EINVAL,
                          "config.packages: the sandbox backend '%s' cannot install packages; leave them out or use "
                          "another backend",
                          backend->name);
    if (spec->network.mode == MANGO_NET_LIMITED && !mg_plugin_can(backend, MANGO_CAP_EGRESS_LIMITED))
        return mg_err_set(err, MG_EINVAL,
                          "config.networking: the sandbox backend '%s' cannot limit the network; use 'unrestricted' or "
                          "another backend",
                          backend->name);
    return spec->network.mode == MANGO_NET_LIMITED ? check_hosts(&spec->network, backend, err) : MG_OK;
}

bool mg_spec_same_packages(const struct mg_spec *spec, struct mg_sv stored)
{
    if (spec->packages.len == 0)
        return true;
    const char *mine = memmem(spec->hash.ptr, spec->hash.len, PACKAGES_MARK, sizeof(PACKAGES_MARK) - 1);
    const char *theirs = memmem(stored.ptr, stored.len, PACKAGES_MARK, sizeof(PACKAGES_MARK) - 1);
    if (!mine || !theirs)
        return false;
    return mg_sv_eq(mg_sv_n(mine, (size_t)(spec->hash.ptr + spec->hash.len - mine)),
                    mg_sv_n(theirs, (size_t)(stored.ptr + stored.len - theirs)));
}
