#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "srt/srt.h"

/* What one sandbox may use: limits of each process (the runner sets them), and of all of them together by a control
 * group where one can be made. Settings: pids, memory, file_size, cpu, cgroup. */

#define DEFAULT_PROCESSES 1024                                /* with threads: a build with several compilers */
#define DEFAULT_MEMORY (UINT64_C(4) * 1024 * 1024 * 1024)     /* bytes of data of one process, and of the sandbox */
#define DEFAULT_FILE_SIZE (UINT64_C(16) * 1024 * 1024 * 1024) /* bytes of one file */

enum {
    OWN_PROCESSES = 4,      /* of a sandbox that are not its commands': bubblewrap's two, the runner, the relay */
    RUNTIME_PROCESSES = 64, /* the same in mode srt: a Node.js with its threads, its bridges, a process a connection */
    GROUP_NAME_MAX = 32,
};

#define RUNTIME_MEMORY (UINT64_C(192) * 1024 * 1024) /* bytes that the same take */

/* ---- settings ---- */

static void number(char out[NUMBER_MAX], uint64_t n)
{
    snprintf(out, NUMBER_MAX, "%" PRIu64, n);
}

static mango_status number_setting(const struct srt *s, const struct mango_call *call, const char *name,
                                   const char *variable, uint64_t *ret)
{
    char *z = setting(s->boxes.host, name), *end = NULL;
    if (!z)
        return MANGO_OK;
    errno = 0;
    unsigned long long n = strtoull(z, &end, 10);
    bool ok = errno == 0 && end != z && *end == '\0' && z[0] != '-' && n > 0 && n < INT64_MAX;
    free(z);
    if (!ok)
        return fail(s->boxes.host, call, MANGO_EINVALID, "%s must be a whole number above 0", variable);
    *ret = n;
    return MANGO_OK;
}

mango_status limits_read(struct srt *s, const struct mango_call *call)
{
    s->processes = DEFAULT_PROCESSES;
    s->memory = DEFAULT_MEMORY;
    s->bytes = DEFAULT_FILE_SIZE;
    mango_status st = number_setting(s, call, "pids", "MANGO_SRT_PIDS", &s->processes);
    if (st == MANGO_OK)
        st = number_setting(s, call, "memory", "MANGO_SRT_MEMORY", &s->memory);
    if (st == MANGO_OK)
        st = number_setting(s, call, "file_size", "MANGO_SRT_FILE_SIZE", &s->bytes);
    if (st == MANGO_OK)
        st = number_setting(s, call, "cpu", "MANGO_SRT_CPU", &s->cpu_millis);
    number(s->limits.processes, s->processes);
    number(s->limits.memory, s->memory);
    number(s->limits.file_size, s->bytes);
    return st;
}

/* Of its own for each base folder: servers on one host do not meet. */
static void group_name(const struct srt *s, char out[GROUP_NAME_MAX])
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (const char *c = s->boxes.base; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    snprintf(out, GROUP_NAME_MAX, "mango-srt-%08" PRIx32, hash);
}

static bool has_folder(void *ctx, const char *id)
{
    const struct srt *s = ctx;
    return faccessat(s->boxes.base_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void limits_open(struct srt *s)
{
    const struct mango_host *h = s->boxes.host;
    char name[GROUP_NAME_MAX], why[CGROUP_WHY_MAX], text[CGROUP_WHY_MAX + 256];
    char *configured = setting(h, "cgroup");
    group_name(s, name);
    if (configured && strcmp(configured, "none") == 0)
        snprintf(why, sizeof(why), "MANGO_SRT_CGROUP is none");
    else if (cgroups_open(&s->groups, configured, name, why))
        cgroups_sweep(&s->groups, has_folder, s);
    free(configured);
    if (s->groups.version)
        return;
    snprintf(text, sizeof(text),
             "no control group for sandboxes: %s; limits hold for each process, not for a sandbox as a whole, and none "
             "for processors",
             why);
    h->log(h, MANGO_LOG_WARN, text);
    if (MANGO_HAS(h, caps_without))
        h->caps_without(h, MANGO_CAP_LIMITS);
}

/* ---- a sandbox ---- */

mango_status limits_check(const struct srt *s, const struct mango_call *call, const struct mango_sandbox_spec *spec)
{
    const struct mango_host *h = s->boxes.host;
    if (spec->disk_bytes > 0)
        return fail(h, call, MANGO_EUNSUPPORTED,
                    "the srt backend cannot bound the disk of a sandbox; MANGO_SRT_FILE_SIZE bounds one file");
    if (spec->cpu_millis > 0 && s->groups.version == 0)
        return fail(h, call, MANGO_EUNSUPPORTED,
                    "no control group can be made on this host, so processors are not bounded");
    return MANGO_OK;
}

static uint64_t smaller(uint64_t asked, uint64_t most)
{
    return asked > 0 && (most == 0 || asked < most) ? asked : most;
}

bool limits_of(struct srt_box *own, const struct box *b, const struct mango_sandbox_spec *spec)
{
    const struct srt *s = b->all->own;
    uint64_t processes = smaller(spec->pids, s->processes), memory = smaller(spec->memory_bytes, s->memory);
    own->limits = s->limits;
    number(own->limits.processes, processes);
    number(own->limits.memory, memory);
    own->group = (struct cgroup_limits){.processes = processes + (s->runtime ? RUNTIME_PROCESSES : OWN_PROCESSES),
                                        .memory = memory + (s->runtime ? RUNTIME_MEMORY : 0),
                                        .cpu_millis = (uint32_t)smaller(spec->cpu_millis, s->cpu_millis)};
    for (int i = 0; s->groups.version && i < CGROUP_KINDS; i++) {
        own->join[i] = cgroup_procs(&s->groups, i, b->live.id);
        if (!own->join[i] && (i == 0 || s->groups.version == 1))
            return false;
    }
    return true;
}

bool limits_words(const struct box *b, struct words *argv)
{
    const struct srt *s = b->all->own;
    const struct srt_box *own = b->own;
    if (s->groups.version == 0)
        return true;
    int e = cgroup_make(&s->groups, b->live.id, &own->group);
    if (e) {
        char text[128];
        snprintf(text, sizeof(text), "the control group of a sandbox cannot be made: %s", strerror(e));
        b->all->host->log(b->all->host, MANGO_LOG_ERROR, text);
        return false;
    }
    word(argv, s->boxes.runner);
    word(argv, "join");
    for (int i = 0; i < CGROUP_KINDS && own->join[i]; i++)
        word(argv, own->join[i]);
    word(argv, "--");
    return true;
}

uint64_t limits_oom_kills(const struct box *b)
{
    const struct srt *s = b->all->own;
    return cgroup_oom_kills(&s->groups, b->live.id);
}

void limits_end(const struct boxes *all, struct mango_sv label)
{
    const struct srt *s = all->own;
    char id[ID_LEN + 1];
    snprintf(id, sizeof(id), "session-%.*s", LABEL_LEN, label.ptr);
    cgroup_remove(&s->groups, id);
}
