#include "srt/runner/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Second line of defence behind the namespaces: what reaches deep into the kernel and no tool of an agent needs. A call
 * is
 *   - of another architecture: the process dies (numbers mean other things there);
 *   - newer than this table: ENOSYS, so that programs fall back as on an older kernel;
 *   - listed: EPERM, or ENOSYS where programs fall back on that;
 *   - clone with a new namespace, a socket outside of the usual families (vsock leads to a hypervisor, whatever the
 *     network namespace), an ioctl that types into a terminal: refused. */

#if defined(__x86_64__) || defined(__CPPCHECK__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000U
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#define X32_BIT 0xFFFFFFFFU
#else
#error "the system call table of this architecture is missing"
#endif

enum {
    COMMON_FIRST = 424, /* from here on numbers are the same on all architectures: pidfd_send_signal */
    COMMON_LAST = 462,  /* mseal, Linux 6.10 */
#if defined(__x86_64__)
    OLD_LAST = 334, /* rseq */
#else
    OLD_LAST = 293,
#endif
    RULES_MAX = 400,
    TIOCSTI_NR = 0x5412,
    TIOCLINUX_NR = 0x541C,
};

/* By number, since the headers of the machine may be older than its kernel. */
enum {
    NR_io_uring_setup = 425,
    NR_io_uring_enter = 426,
    NR_io_uring_register = 427,
    NR_open_tree = 428,
    NR_fspick = 433, /* move_mount, fsopen, fsconfig, fsmount lie between */
    NR_clone3 = 435,
    NR_pidfd_getfd = 438,
    NR_mount_setattr = 442,
    NR_quotactl_fd = 443,
    NR_set_mempolicy_home_node = 450,
    NR_statmount = 457,
    NR_lsm_list_modules = 461, /* listmount, lsm_get_self_attr, lsm_set_self_attr lie between */
};

static const struct {
    uint16_t nr, err;
} refused[] = {
    {SYS_ptrace, EPERM},
    {SYS_process_vm_readv, EPERM},
    {SYS_process_vm_writev, EPERM},
    {SYS_kcmp, EPERM},
    {SYS_keyctl, EPERM},
    {SYS_add_key, EPERM},
    {SYS_request_key, EPERM},
    {SYS_bpf, EPERM},
    {SYS_perf_event_open, EPERM},
    {SYS_userfaultfd, EPERM},
    {SYS_mount, EPERM},
    {SYS_umount2, EPERM},
    {SYS_pivot_root, EPERM},
    {SYS_chroot, EPERM},
    {SYS_unshare, EPERM},
    {SYS_setns, EPERM},
    {SYS_open_by_handle_at, EPERM},
    {SYS_name_to_handle_at, EPERM},
    {SYS_init_module, EPERM},
    {SYS_finit_module, EPERM},
    {SYS_delete_module, EPERM},
    {SYS_kexec_load, EPERM},
    {SYS_reboot, EPERM},
    {SYS_swapon, EPERM},
    {SYS_swapoff, EPERM},
    {SYS_acct, EPERM},
    {SYS_syslog, EPERM},
    {SYS_quotactl, EPERM},
    {SYS_nfsservctl, ENOSYS},
    {SYS_lookup_dcookie, EPERM},
    {SYS_settimeofday, EPERM},
    {SYS_clock_settime, EPERM},
    {SYS_adjtimex, EPERM},
    {SYS_clock_adjtime, EPERM},
    {SYS_sethostname, EPERM},
    {SYS_setdomainname, EPERM},
    {SYS_vhangup, EPERM},
    {SYS_fanotify_init, EPERM},
    {SYS_mbind, EPERM},
    {SYS_migrate_pages, EPERM},
    {SYS_move_pages, EPERM},
    {SYS_set_mempolicy, EPERM},
#if defined(__x86_64__)
    {SYS_kexec_file_load, EPERM},
    {SYS_iopl, EPERM},
    {SYS_ioperm, EPERM},
    {SYS_modify_ldt, EPERM},
    {SYS_uselib, ENOSYS},
    {SYS_ustat, ENOSYS},
    {SYS_sysfs, ENOSYS},
    {SYS__sysctl, ENOSYS},
    {SYS_create_module, ENOSYS},
    {SYS_get_kernel_syms, ENOSYS},
    {SYS_query_module, ENOSYS},
#endif
    {NR_io_uring_setup, ENOSYS},
    {NR_io_uring_enter, ENOSYS},
    {NR_io_uring_register, ENOSYS},
    {NR_clone3, ENOSYS}, /* its flags lie in memory, where a filter cannot look; the C library falls back to clone */
    {NR_pidfd_getfd, EPERM},
    {NR_mount_setattr, EPERM},
    {NR_quotactl_fd, EPERM},
    {NR_set_mempolicy_home_node, EPERM},
};

static const struct {
    uint16_t first, last;
} refused_ranges[] = {{NR_open_tree, NR_fspick}, {NR_statmount, NR_lsm_list_modules}};

enum {
    NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP | 0x80 /* CLONE_NEWTIME */,
};

struct program {
    struct sock_filter rule[RULES_MAX];
    unsigned short n;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    if (p->n < RULES_MAX)
        p->rule[p->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t offset)
{
    add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void fail_with(struct program *p, uint32_t err)
{
    add(p, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err, 0, 0);
}

static void allow(struct program *p)
{
    add(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

/* Of the accumulator, which holds the number. Both ends belong to the range. */
static void refuse_range(struct program *p, uint32_t first, uint32_t last, uint32_t err)
{
    add(p, BPF_JMP | BPF_JGE | BPF_K, first, 0, 2);
    add(p, BPF_JMP | BPF_JGT | BPF_K, last, 1, 0);
    fail_with(p, err);
}

static void arguments(struct program *p)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    const size_t arg0 = offsetof(struct seccomp_data, args[0]), arg1 = offsetof(struct seccomp_data, args[1]);
    const int n = sizeof(families) / sizeof(families[0]);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    load(p, arg0);
    add(p, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
    fail_with(p, EPERM);
    allow(p);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5);
    load(p, arg1);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI_NR, 1, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX_NR, 0, 1);
    fail_with(p, EPERM);
    allow(p);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, (uint8_t)(n + 3));
    load(p, arg0);
    for (int i = 0; i < n; i++)
        add(p, BPF_JMP | BPF_JEQ | BPF_K, families[i], (uint8_t)(n - i), 0);
    fail_with(p, EAFNOSUPPORT);
    allow(p);
    allow(p);
}

int filter_install(void)
{
    static struct program p;
    load(&p, offsetof(struct seccomp_data, arch));
    add(&p, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    add(&p, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    load(&p, offsetof(struct seccomp_data, nr));
    refuse_range(&p, X32_BIT, UINT32_MAX, ENOSYS);
    refuse_range(&p, OLD_LAST + 1, COMMON_FIRST - 1, ENOSYS);
    refuse_range(&p, COMMON_LAST + 1, X32_BIT - 1, ENOSYS);
    for (size_t i = 0; i < sizeof(refused_ranges) / sizeof(refused_ranges[0]); i++)
        refuse_range(&p, refused_ranges[i].first, refused_ranges[i].last, EPERM);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        add(&p, BPF_JMP | BPF_JEQ | BPF_K, refused[i].nr, 0, 1);
        fail_with(&p, refused[i].err);
    }
    arguments(&p);
    if (p.n >= RULES_MAX)
        return E2BIG;
    const struct sock_fprog prog = {.len = p.n, .filter = p.rule};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        return errno;
    return 0;
}
