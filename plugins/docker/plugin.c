#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/brought.h"
#include "docker/archive.h"
#include "docker/docker.h"
#include "docker/egress.h"
#include "docker/launcher.h"
#include "docker/mux-client.h"

#define DEFAULT_IMAGE "debian:bookworm-slim"
#define DEFAULT_USER "10001:10001" /* nobody on the host, nobody in images */

enum {
    SETTING_MAX = 4096,
    PROGRAM_MAX = 16 * 1024 * 1024, /* bytes of mango-box */
    HEALTH_MS = 2000,
};

/* Limits of a sandbox where the environment names none. */
static const struct {
    const char *name, *variable, *text;
    uint64_t min, max;
} numbers[] = {
    {"memory", "MANGO_DOCKER_MEMORY", "1073741824", 16 * 1024 * 1024, UINT64_C(1) << 46}, /* bytes */
    {"disk", "MANGO_DOCKER_DISK", "0", 0, UINT64_C(1) << 50},                 /* bytes of the workspace; 0: no limit */
    {"tmp", "MANGO_DOCKER_TMP", "268435456", 1024 * 1024, UINT64_C(1) << 40}, /* bytes of /tmp; counted as memory too */
    {"cpu", "MANGO_DOCKER_CPU", "1000", 10, 1024 * 1000},                     /* thousandths of a core */
    {"pids", "MANGO_DOCKER_PIDS", "256", 8, 1024 * 1024},
};
enum { N_MEMORY, N_DISK, N_TMP, N_CPU, N_PIDS };

/* ---- settings ---- */

/* As malloc memory, or NULL. secret: a variable of its own name instead. */
static char *setting(const struct mango_host *h, const char *name, bool own_name)
{
    struct mango_buf *b = h->buf_new(h, SETTING_MAX);
    char *z = NULL;
    if (b && (own_name ? h->secret_get(h, name, b) : h->config_get(h, name, b)) == MANGO_OK)
        z = sv_dup(h->buf_view(h, b));
    h->buf_free(h, b);
    return z;
}

static char *setting_or(const struct mango_host *h, const char *name, const char *otherwise)
{
    char *z = setting(h, name, false);
    return z ? z : strdup(otherwise);
}

static mango_status number(const struct docker *d, const struct mango_call *call, int which, uint64_t *ret)
{
    char *z = setting_or(d->host, numbers[which].name, numbers[which].text), *end = NULL;
    errno = 0;
    unsigned long long v = z && *z >= '0' && *z <= '9' ? strtoull(z, &end, 10) : 0;
    bool ok = end && *end == '\0' && errno == 0 && v >= numbers[which].min && v <= numbers[which].max;
    mango_status s = MANGO_OK;
    if (!ok)
        s = fail(d->host, call, MANGO_EINVALID, "%s is '%.50s'; it must be a number from %llu to %llu",
                 numbers[which].variable, z ? z : "", (unsigned long long)numbers[which].min,
                 (unsigned long long)numbers[which].max);
    free(z);
    *ret = v;
    return s;
}

/* "UID:GID", numbers only: names would need the image's /etc/passwd. Root is refused. */
static mango_status read_user(struct docker *d, const struct mango_call *call)
{
    char *end = NULL, *end2 = NULL;
    const char *z = d->set.user;
    unsigned long uid = *z >= '0' && *z <= '9' ? strtoul(z, &end, 10) : 0, gid = 0;
    if (end && *end == ':' && end[1] >= '0' && end[1] <= '9')
        gid = strtoul(end + 1, &end2, 10);
    if (!end2 || *end2 || uid == 0 || uid > UINT32_MAX - 1 || gid > UINT32_MAX - 1)
        return fail(d->host, call, MANGO_EINVALID,
                    "MANGO_DOCKER_USER is '%.50s'; it must be UID:GID, both numbers and the UID above 0", z);
    d->uid = (uint32_t)uid;
    d->gid = (uint32_t)gid;
    return MANGO_OK;
}

static mango_status read_runner(struct docker *d, const struct mango_call *call)
{
    static const char *const names[] = {[RUNNER_AUTO] = "auto", [RUNNER_BOX] = "box", [RUNNER_EXEC] = "exec"};
    char *z = setting(d->host, "runner", false);
    mango_status s = z ? MANGO_EINVALID : MANGO_OK;
    for (int i = 0; z && i < 3; i++) {
        if (strcmp(z, names[i]) == 0) {
            d->set.runner = i;
            s = MANGO_OK;
        }
    }
    if (s < 0)
        s = fail(d->host, call, s, "MANGO_DOCKER_RUNNER is '%.50s'; it must be auto, box or exec", z);
    free(z);
    return s;
}

static mango_status read_settings(struct docker *d, const struct mango_call *call)
{
    const struct mango_host *h = d->host;
    uint64_t v[N_PIDS + 1];
    for (int i = 0; i <= N_PIDS; i++) {
        mango_status s = number(d, call, i, &v[i]);
        if (s < 0)
            return s;
    }
    d->set.memory_bytes = v[N_MEMORY];
    d->set.disk_bytes = v[N_DISK];
    d->set.tmp_bytes = v[N_TMP];
    d->set.cpu_millis = (uint32_t)v[N_CPU];
    d->set.pids = (uint32_t)v[N_PIDS];
    d->set.image = setting_or(h, "image", DEFAULT_IMAGE);
    d->set.user = setting_or(h, "user", DEFAULT_USER);
    d->set.network = setting_or(h, "network", "bridge");
    d->set.runtime = setting(h, "runtime", false);
    d->set.config_dir = setting(h, "DOCKER_CONFIG", true);
    if (!d->set.image || !d->set.user || !d->set.network)
        return fail(d->host, call, MANGO_ERETRY, "out of memory");
    mango_status s = read_user(d, call);
    return s == MANGO_OK ? read_runner(d, call) : s;
}

static mango_status read_endpoint(struct docker *d, const struct mango_call *call)
{
    char why[ENDPOINT_WHY_MAX];
    char *host = setting(d->host, "host", false), *verify = setting(d->host, "DOCKER_TLS_VERIFY", true);
    char *certs = setting(d->host, "DOCKER_CERT_PATH", true), *config = NULL;
    if (!host)
        host = setting(d->host, "DOCKER_HOST", true);
    if (!certs && verify && (config = setting(d->host, "DOCKER_CONFIG", true)))
        certs = strdup(config); /* as the docker command has it */
    bool ok = endpoint_parse(&d->at, host ? host : "", certs ? certs : "", verify != NULL, why);
    free(host);
    free(verify);
    free(certs);
    free(config);
    return ok ? MANGO_OK : fail(d->host, call, MANGO_EINVALID, "%s", why);
}

/* ---- mango-box ---- */

/* As images name theirs, from the head of an ELF file; empty when it is none. */
static void arch_of(struct mango_sv program, char arch[ARCH_MAX])
{
    static const struct {
        unsigned machine;
        const char *name;
    } known[] = {
        {EM_X86_64, "amd64"}, {EM_AARCH64, "arm64"}, {EM_RISCV, "riscv64"}, {EM_PPC64, "ppc64le"}, {EM_S390, "s390x"}};
    Elf64_Ehdr head;
    arch[0] = '\0';
    if (program.len < sizeof(head) || memcmp(program.ptr, ELFMAG, SELFMAG) != 0)
        return;
    memcpy(&head, program.ptr, sizeof(head));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (head.e_machine == known[i].machine)
            snprintf(arch, ARCH_MAX, "%s", known[i].name);
    }
}

static mango_status load_program(struct docker *d, const struct mango_call *call)
{
    static const struct brought_file f = {.name = "mango-box",
                                          .title = "",
                                          .remedy = "install it or set MANGO_DOCKER_BOX to its path",
                                          .max = PROGRAM_MAX};
    struct brought p;
    mango_status s = brought_load(d->host, call, &f, setting(d->host, "box", false), &p);
    d->program = p.bytes;
    d->program_hash = p.hash;
    struct mango_sv all = s == MANGO_OK ? d->host->buf_view(d->host, d->program) : no_text();
    arch_of(all, d->box_arch);
    return s;
}

/* ---- the plugin ---- */

static void docker_free(struct docker *d)
{
    free(d->set.image);
    free(d->set.user);
    free(d->set.network);
    free(d->set.runtime);
    free(d->set.config_dir);
    endpoint_done(&d->at);
    d->host->buf_free(d->host, d->program);
    live_table_destroy(&d->boxes);
    bundle_done(d);
    free(d);
}

static mango_status docker_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                                void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct docker *d = calloc(1, sizeof(*d));
    if (!d)
        return host->err_set(host, call, MANGO_ERETRY, "out of memory", NULL, 0);
    d->host = host;
    live_table_init(&d->boxes);
    bundle_init(d);
    mango_status s = read_settings(d, call);
    if (s == MANGO_OK)
        s = read_endpoint(d, call);
    if (s == MANGO_OK)
        s = load_program(d, call);
    if (s == MANGO_OK)
        s = engine_hello(d, call);
    if (s < 0) {
        docker_free(d);
        return s;
    }
    templates_sweep(d, call);
    egress_declare(d);
    *ret_ctx = d;
    return MANGO_OK;
}

static void docker_fini(void *ctx)
{
    boxes_drop_all(ctx);
    docker_free(ctx);
}

static mango_status docker_health(void *ctx, const struct mango_call *call)
{
    struct docker *d = ctx;
    struct engine_res r = {0};
    struct mango_call own = call_within(d, call, HEALTH_MS);
    const struct engine_req req = {.method = "GET", .path = "/_ping"};
    mango_status s = engine_call(d, &own, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "answer");
    engine_free(d, &r);
    return s;
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = docker_create,
    .attach = docker_attach,
    .exec = docker_exec,
    .read = docker_read,
    .write = docker_write,
    .stat = docker_stat,
    .destroy = docker_destroy,
    .health = docker_health,
    .detach = docker_detach,
    .list_owned = docker_list_owned,
    .proc_open = docker_proc_open,
    .proc_write = docker_proc_write,
    .proc_read = docker_proc_read,
    .proc_close = docker_proc_close,
    .pause = docker_pause,
    .resume = docker_resume,
    .snapshot = docker_snapshot,
    .snapshot_delete = docker_snapshot_delete,
    .fork = docker_fork,
    .set_network = docker_set_network,
    .archive_in = docker_archive_in,
    .archive_out = docker_archive_out,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX | MANGO_KIND_LAUNCHER,
    .name = "docker",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one hardened container and volume per session, over the Docker Engine API",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PROC | MANGO_CAP_PAUSE | MANGO_CAP_SNAPSHOT | MANGO_CAP_FORK |
            MANGO_CAP_ARCHIVES | MANGO_CAP_EGRESS_LIMITED | MANGO_CAP_MOUNTS_RO | MANGO_CAP_LIMITS |
            MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC | MANGO_CAP_ISOLATED | MANGO_CAP_NO_NETWORK |
            DOCKER_LAUNCHER_CAPS,
    .required_host = MANGO_HOST_HTTP | MANGO_HOST_UPGRADE,
    .init = docker_init,
    .fini = docker_fini,
    .sandbox = &ops,
    .launcher = &docker_launcher_ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
