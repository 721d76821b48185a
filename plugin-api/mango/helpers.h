/* Mango plugin ABI 1: code that an adapter may link, for what every adapter of one kind would write again. A static
 * library (pkg-config --libs mango-plugin): it becomes a part of the plugin, and nothing of it is exported.
 *
 * For adapters whose workspaces are folders of the server's machine, and for those whose commands are a program of that
 * machine (the command line tool of a virtual machine, of another container engine). Every function is safe to call from
 * any thread at the same time. */
#ifndef MANGO_HELPERS_H
#define MANGO_HELPERS_H

#include "mango/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A workspace that is a folder of this machine. Links and ".." that lead out of it are refused by the kernel (openat2,
 * Linux 5.9), whatever a command swaps meanwhile. */
struct mango_folder {
    int fd;           /* of the folder, O_PATH will do; negative: every call is MANGO_EGONE */
    const char *path; /* its absolute path as commands see it; paths inside of it are relative or begin with this */
    int fresh_fd;     /* a folder beside it, on the same file system, for files that are being written */
};

/* The operations of that name. */
mango_status mango_folder_read(const struct mango_host *host, const struct mango_call *call,
                               const struct mango_folder *folder, const struct mango_read_req *req, int32_t *ret_eof);
mango_status mango_folder_write(const struct mango_host *host, const struct mango_call *call,
                                const struct mango_folder *folder, const struct mango_write_req *req);
mango_status mango_folder_stat(const struct mango_host *host, const struct mango_call *call,
                               const struct mango_folder *folder, struct mango_sv path, uint32_t flags,
                               struct mango_stat *ret);
/* Removes the folder NAME of parent_fd with all that is in it; follows no link. 0 or errno. */
int mango_folder_remove(int parent_fd, const char *name);

/* Runs req's argv as processes of this machine, with the whole contract of exec: its input, its output in pieces of whole
 * characters up to the bound, the end of the command and not of its pipes, the time limit and the token.
 *
 * env: "NAME=value" and NULL at the end, all that commands get beside req's own. One of them must be mark, a variable
 * that no other sandbox has ("BOX=" and the label): whatever the command starts inherits it, and is found by it.
 *
 * The working folder is req's cwd in folder. */
mango_status mango_program_exec(const struct mango_host *host, const struct mango_call *call,
                                const struct mango_folder *folder, const char *const *env,
                                const struct mango_exec_req *req, struct mango_exec_result *ret);
/* Kills every process of this machine that has the variable in its environment, until none is left. */
void mango_program_kill(const char *mark);

/* 1 when both hold the same bytes. */
static inline int32_t mango_sv_same(struct mango_sv a, struct mango_sv b)
{
    uint64_t i = 0;
    while (a.len == b.len && i < a.len && a.ptr[i] == b.ptr[i])
        i++;
    return a.len == b.len && i == a.len;
}

#ifdef __cplusplus
}
#endif
#endif
