/* Control groups for sandboxes of this host: what all processes of one sandbox use together, bounded by the kernel.
 * Version 2, or version 1 with its controllers pids, memory and cpu.
 *
 * Where a group can be made: below the one that an operator names, or below the server's own where the service manager
 * has handed it over (Delegate=yes), or where no service manager keeps the groups.
 *
 * Concurrency: struct cgroups does not change after cgroups_open. */
#ifndef MANGO_COMMON_CGROUP_H
#define MANGO_COMMON_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_KINDS = 3, CGROUP_WHY_MAX = 300 };

struct cgroups {
    int version;                /* 0: there are none */
    char *parent[CGROUP_KINDS]; /* folders for the groups of sandboxes: pids, memory, cpu; version 2: the same */
};

/* 0: no limit. */
struct cgroup_limits {
    uint64_t processes, memory;
    uint32_t cpu_millis;
};

/* configured: a folder to make groups in, or NULL. name: of our folder there. False, with the reason: none can be made. */
bool cgroups_open(struct cgroups *c, const char *configured, const char *name, char why[CGROUP_WHY_MAX]);
void cgroups_close(struct cgroups *c);
/* Makes the sandbox's group, or gives the one that is there these limits. 0 or errno. */
int cgroup_make(const struct cgroups *c, const char *id, const struct cgroup_limits *l);
/* The file that a process writes 0 to in order to join, as malloc memory; NULL: out of memory, or the same as kind 0. */
char *cgroup_procs(const struct cgroups *c, int kind, const char *id);
/* Processes of the sandbox that the kernel killed for want of memory. */
uint64_t cgroup_oom_kills(const struct cgroups *c, const char *id);
/* Kills what is in it and removes it. Idempotent. */
void cgroup_remove(const struct cgroups *c, const char *id);
/* Removes the groups of which keep says no. */
void cgroups_sweep(const struct cgroups *c, bool (*keep)(void *ctx, const char *id), void *ctx);

#endif
