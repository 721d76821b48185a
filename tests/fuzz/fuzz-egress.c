/* What a sandbox says to the filtering proxy: no request is taken for another one when its bytes come in pieces, and the head that goes on means
 * what was checked. The first byte picks the parser. */
#include <string.h>

#include "egress/request.h"
#include "fuzz/fuzz.h"

static void check_target(const struct mg_egress_target *t)
{
    char again[MG_EGRESS_HOST_MAX];
    fuzz_check(t->port > 0 && t->port < 65536, "a port is one");
    fuzz_check(mg_egress_host_norm(mg_sv_of(t->host), again) && strcmp(again, t->host) == 0, "a host stays what it is");
    fuzz_check(strpbrk(t->host, "\r\n /@") == NULL, "a host is a word");
}

/* What is sent on has a few lines more than what came, and may be too long for us to take again. */
static bool is_taken(struct mg_sv head)
{
    int lines = 0;
    for (size_t i = 0; i < head.len; i++)
        lines += head.ptr[i] == '\n';
    return head.len <= MG_EGRESS_HEAD_MAX && lines - 2 <= MG_EGRESS_HEADERS_MAX;
}

/* What goes on is one request for the same host, and is framed as the first was. */
static void check_http(const struct mg_egress_http *h)
{
    static const struct mg_sv extra = {"Authorization: Bearer x\r\n", 25};
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4 * MG_EGRESS_HEAD_MAX);
    struct mg_egress_http again;
    check_target(&h->target);
    if (h->tunnel)
        return;
    mg_egress_http_write(h, extra, &out);
    mg_rc rc = mg_egress_origin_parse(mg_buf_view(&out), &h->target, &again);
    fuzz_check(!is_taken(mg_buf_view(&out)) || rc == MG_OK, "what goes on is a request to the same host");
    fuzz_check(rc < 0 || (again.used == out.len && again.chunked == h->chunked && again.length == h->length),
               "what goes on is framed alike");
}

static void fuzz_http(struct mg_sv text)
{
    static const struct mg_egress_target tunnel = {.host = "ok.test", .port = 80};
    struct mg_egress_http h, whole;
    mg_rc rc = mg_egress_http_parse(text, &whole);
    for (size_t n = 0; n < text.len; n++) {
        mg_rc part = mg_egress_http_parse(mg_sv_n(text.ptr, n), &h);
        if (part == MG_EUNAVAIL)
            continue;
        fuzz_check(part == rc && (rc < 0 || h.used == whole.used), "a head is what it is once it is whole");
        break;
    }
    if (rc == MG_OK)
        check_http(&whole);
    if (mg_egress_origin_parse(text, &tunnel, &h) == MG_OK)
        check_http(&h);
}

static void fuzz_socks(struct mg_sv text)
{
    struct mg_egress_hello hello;
    struct mg_egress_target t;
    char user[MG_EGRESS_USER_MAX], password[MG_EGRESS_USER_MAX];
    size_t used = 0;
    int command = 0;
    if (mg_egress_socks_hello(text, &hello) == MG_OK)
        fuzz_check(hello.used <= text.len, "a hello is no longer than the input");
    if (mg_egress_socks_password(text, user, password, &used) == MG_OK)
        fuzz_check(used <= text.len, "a password is no longer than the input");
    if (mg_egress_socks_request(text, &t, &command, &used) == MG_OK) {
        fuzz_check(used <= text.len, "a request is no longer than the input");
        check_target(&t);
    }
}

static void fuzz_tls(struct mg_sv text)
{
    char name[MG_EGRESS_HOST_MAX], part[MG_EGRESS_HOST_MAX];
    mg_rc rc = mg_egress_tls_name(text, name);
    for (size_t n = 1; n < text.len; n++) {
        mg_rc r = mg_egress_tls_name(mg_sv_n(text.ptr, n), part);
        if (r == MG_EUNAVAIL)
            continue;
        fuzz_check(r == rc && (rc < 0 || strcmp(part, name) == 0), "a ClientHello is what it is once it is whole");
        break;
    }
}

static void fuzz_policy(struct mg_sv text)
{
    struct mg_egress_policy *p = NULL;
    struct mg_egress_networks networks;
    struct mg_err err = {0};
    struct mango_sv hosts[16];
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_LIMITED, .hosts = hosts};
    if (mg_egress_networks_parse(text, &networks, &err) == MG_OK)
        fuzz_check(networks.n <= MG_EGRESS_NETWORKS_MAX, "the list is bounded");
    while (text.len > 0 && net.n_hosts < 16) {
        struct mg_sv one = mg_sv_split(&text, '\n');
        hosts[net.n_hosts++] = (struct mango_sv){one.ptr, one.len};
    }
    if (mg_egress_policy_new(&net, &p, &err) == MG_OK)
        (void)mg_egress_policy_match(p, MG_SV("a.ok.test"), 443);
    mg_egress_policy_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(struct mg_sv) = {fuzz_http, fuzz_socks, fuzz_tls, fuzz_policy};
    if (size < 1)
        return 0;
    parsers[data[0] % 4](fuzz_text(data + 1, size - 1));
    return 0;
}
