/* Bodies of the API: deployments, vaults and their credentials, memory, resources of a session, and the small texts of files. */
#include "base/buf.h"
#include "domain/deploy.h"
#include "domain/file.h"
#include "domain/memory.h"
#include "domain/resource.h"
#include "domain/vault.h"
#include "fuzz/fuzz.h"

static void check_credential(struct mg_arena *a, const struct mg_json *body)
{
    struct mg_credential made = {0}, changed = {0};
    struct mg_err err = {0};
    mg_rc rc = mg_credential_parse_create(a, body, true, &made, &err);

    fuzz_check_err(rc, &err);
    if (rc < 0)
        return;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(MG_CREDENTIAL_SECRET_MAX);
    struct mg_credential_secret again = {0};
    fuzz_check(mg_credential_secret_write(&made.secret, &out) == MG_OK, "a secret part can be written");
    fuzz_check(mg_credential_secret_read(a, mg_buf_view(&out), &again, &err) == MG_OK, "and be read");
    (void)!mg_credential_parse_update(a, body, &made, &changed, &err);
}

static void check_deploy(struct mg_arena *a, const struct mg_json *body)
{
    struct mg_deploy made = {0}, changed = {0};
    struct mg_err err = {0};
    mg_rc rc = mg_deploy_parse_create(a, body, &made, &err);

    fuzz_check_err(rc, &err);
    if (rc == MG_OK)
        (void)!mg_deploy_parse_update(a, body, &made, &changed, &err);
}

static void check_memory(struct mg_arena *a, const struct mg_json *body)
{
    struct mg_memory_store store = {0}, changed = {0};
    struct mg_memory_wish wish = {0};
    struct mg_err err = {0};
    mg_rc rc = mg_memory_store_parse_create(a, body, &store, &err);

    fuzz_check_err(rc, &err);
    if (rc == MG_OK)
        (void)!mg_memory_store_parse_update(a, body, &store, &changed, &err);
    fuzz_check_err(mg_memory_parse_create(a, body, &wish, &err), &err);
    fuzz_check_err(mg_memory_parse_update(a, body, &wish, &err), &err);
}

static void check_resources(struct mg_arena *a, const struct mg_json *body)
{
    const struct mg_json *list = mg_json_get(body, "resources");
    struct mg_resource_spec *specs = NULL;
    struct mg_err err = {0};
    int n = 0;

    if (!list)
        return;
    mg_rc rc = mg_resources_parse(a, list, &specs, &n, &err);
    fuzz_check_err(rc, &err);
    for (int i = 0; rc == MG_OK && i < n; i++) {
        for (int j = 0; j < i && specs[i].mount_path.len; j++)
            fuzz_check(!specs[j].mount_path.len || !mg_mounts_meet(specs[i].mount_path, specs[j].mount_path),
                       "no two resources meet at one place");
    }
}

static void check_texts(struct mg_arena *a, struct mg_sv text)
{
    struct mg_sv name = {0};
    struct mg_err err = {0};
    int64_t seconds = 0;

    if (mg_file_name(a, text, MG_SV("text/plain"), &name, &err) == MG_OK)
        (void)mg_file_disposition(a, name);
    (void)mg_file_type(a, text, name);
    (void)!mg_file_expiry(text, &seconds, &err);
    (void)!mg_memory_path_check(text, "path", &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_arena *a = mg_arena_new();
    const struct mg_json *body = NULL;
    struct mg_vault vault = {0};
    struct mg_err err = {0};
    mg_rc rc = mg_body_parse(a, fuzz_text(data, size), &body, &err);

    fuzz_check_err(rc, &err);
    if (rc == MG_OK) {
        check_credential(a, body);
        check_deploy(a, body);
        check_memory(a, body);
        check_resources(a, body);
        fuzz_check_err(mg_vault_parse_create(a, body, &vault, &err), &err);
    } else {
        check_texts(a, fuzz_text(data, size));
    }
    mg_arena_free(a);
    return 0;
}
