#include "tools/shell.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "tools/marker.h"

enum {
    OPEN_MS = 20000,         /* a cold sandbox may take long to start its first shell */
    SETTLE_MS = 3500,        /* after a timeout: for the shell to come back before it is given up */
    SETTLE_CANCEL_MS = 700,  /* the same after a cancel, which has to end within a second */
    ROUND_MS = 200,          /* between two signals */
    SIGNAL_MS = 1000,        /* for the helper that sends them */
    PENDING_MAX = 64 * 1024, /* bytes of background output kept between two calls: one piece of a sink */
    STDIN_MAX =
        17 * 1024 * 1024, /* bytes of a command on its way: a command of 4 MiB, all of it quotes, and the frame */
    HALF = MG_MARKER_SECRET / 2,
};

/* The secret goes in two halves, so that it never stands whole in an argv, in an echo of the input (set -v) or in a trace (set -x). */
static const char OUTER[] = "trap : INT\n"
                            "if command -v bash >/dev/null 2>&1; then bash --noprofile --norc; else sh; fi\n"
                            "printf '\\036%s%s X %d\\036\\n' \"$1\" \"$2\" \"$?\"\n";

/* `return` needs a sourced text, and the sourced text must not be a function, where `declare` would make local variables. The trap on URG is
 * what ends a loop of the shell itself after a timeout, and only inside of a command: at its top, `return` would end a
 * dash; by default the signal does nothing, so it hurts nobody who does not know it. */
static const char INIT[] =
    "exec 2>&1\n"
    "PS1= PS2= mango_s=0 mango_l=\n"
    "shopt -s execfail 2>/dev/null\n"
    "if [ -r /dev/stdin ]; then mango_s=1; trap '[ -z \"$mango_in\" ] || return 130 2>/dev/null' URG; else trap : URG; "
    "fi\n"
    "read -r mango_l 2>/dev/null </proc/$$/stat\n"
    "command printf '\\036%%s%%s R %%d %%d %%s\\036\\n' %s %s $mango_s $$ \"$mango_l\"; unset mango_s mango_l\n";

static const char RUN_SOURCED[] =
    "\ncommand . /dev/stdin <<'E'\nmango_in=1\ncommand eval \"$mango_command\" </dev/null 1>&2 2>&1\nE\n";
static const char RUN_PLAIN[] = "\ncommand eval \"$mango_command\" </dev/null 1>&2 2>&1\n";

/* $1 the shell, $2 its start time (so that no other process is ever hit), $3 the signal for what runs in its foreground. Background jobs of a
 * shell without job control ignore SIGINT: that tells them apart. URG comes first: it waits for the end of what runs, and then keeps the shell
 * from starting the rest of the command. */
static const char STOP[] = "p=$1 sig=$3 want=$2 kids=\n"
                           "read -r s 2>/dev/null </proc/$p/stat || exit 3\n"
                           "set -- ${s##*) }\n"
                           "[ \"${20}\" = \"$want\" ] || exit 3\n"
                           "background() {\n"
                           "  while read -r n v; do [ \"$n\" = SigIgn: ] && break; done 2>/dev/null </proc/$1/status\n"
                           "  case $v in *[2367abef]) return 0;; esac; return 1\n"
                           "}\n"
                           "children() { list=; for f in /proc/$1/task/*/children; do l=; read -r l 2>/dev/null "
                           "<\"$f\"; list=\"$list $l\"; done; }\n"
                           "tree() { children $1; for k in $list; do kids=\"$kids $k\"; tree $k; done; }\n"
                           "children $p\n"
                           "for c in $list; do background $c && continue; kids=\"$kids $c\"; tree $c; done\n"
                           "kill -URG $p\n"
                           "[ -z \"$kids\" ] || kill -$sig $kids 2>/dev/null\n"
                           ":\n";

struct mg_shell {
    const struct mg_tool_ops *ops;
    void *box, *proc;
    char secret[MG_MARKER_SECRET + 1];
    struct mg_marker marker;
    char pid[16], start[24]; /* "" when the sandbox does not tell */
    bool sourced;
    uint64_t call;
    struct mg_buf pending; /* output behind the last marker */
    /* of the call that runs */
    struct mg_output *out;
    bool marked;
};

static void to_output(void *ctx, const char *p, size_t n)
{
    struct mg_shell *s = ctx;

    if (s->out)
        mg_output_feed(s->out, p, n);
}

/* Sink: output to the call up to the marker, the rest is kept for the next one. */
static bool take(void *ctx, int stream, const char *p, size_t n)
{
    struct mg_shell *s = ctx;

    (void)stream;
    if (!s->marked) {
        size_t took = mg_marker_feed(&s->marker, p, n, to_output, s);
        s->marked = s->marker.found;
        p += took;
        n -= took;
    }
    size_t room = PENDING_MAX - s->pending.len;
    if (s->marked && n)
        mg_buf_append(&s->pending, p, n < room ? n : room);
    return !s->marked;
}

static void take_pending(struct mg_shell *s)
{
    size_t n = 0;

    s->marked = false;
    if (s->pending.len) {
        mg_autofree char *held = mg_buf_steal(&s->pending, &n);
        (void)take(s, 1, held, n);
    }
}

/* Reads to the next marker. MG_OK with !s->marked: the process has ended. */
static mg_rc read_marker(struct mg_shell *s, uint64_t deadline_ns, struct mg_cancel *cancel, struct mg_err *err)
{
    bool closed = false;
    mg_rc rc = MG_OK;

    for (take_pending(s); !s->marked && !closed && rc == MG_OK;)
        rc = s->ops->proc_read(s->proc, deadline_ns, cancel, take, s, &closed, err);
    return s->marked ? MG_OK : rc;
}

/* Whether the shell had ended by itself since its last call; takes the output of background jobs that is there. */
static bool has_ended(struct mg_shell *s)
{
    enum { LOOKS = 16 /* pieces; a background job that floods must not hold the call up */ };
    bool closed = false;
    mg_rc rc = MG_OK;

    take_pending(s);
    for (int i = 0; i < LOOKS && rc == MG_OK && !closed && !s->marked; i++)
        rc = s->ops->proc_read(s->proc, mg_now_ns(), NULL, take, s, &closed, NULL);
    return closed || s->marked || (rc < 0 && rc != MG_ETIMEOUT);
}

void mg_shell_quote(struct mg_buf *out, struct mg_sv text)
{
    mg_buf_char(out, '\'');
    for (;;) {
        size_t n = mg_sv_find(text, '\'');
        mg_buf_append(out, text.ptr, n);
        if (n == text.len)
            break;
        mg_buf_str(out, "'\\''");
        text = mg_sv_from(text, n + 1);
    }
    mg_buf_char(out, '\'');
}

/* Field 22 of /proc/PID/stat is the start time; fields are counted behind the name, which may hold anything. */
static void keep_identity(struct mg_shell *s, const char *ready)
{
    long pid = 0;
    int sourced = 0, at = 0;

    if (sscanf(ready, " R %d %ld %n", &sourced, &pid, &at) < 2)
        return;
    s->sourced = sourced == 1;
    const char *p = strrchr(ready + at, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return;
    (void)snprintf(s->pid, sizeof(s->pid), "%ld", pid);
    (void)snprintf(s->start, sizeof(s->start), "%.*s", (int)strcspn(p + 1, " "), p + 1);
}

static mg_rc greet(struct mg_shell *s, struct mg_cancel *cancel, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(4096);
    char a[HALF + 1] = "", b[HALF + 1] = "";

    memcpy(a, s->secret, HALF);
    memcpy(b, s->secret + HALF, HALF);
    mg_buf_printf(&text, INIT, a, b);
    mg_rc rc = s->ops->proc_write(s->proc, mg_buf_view(&text), err);
    if (rc == MG_OK)
        rc = read_marker(s, mg_now_ns() + (uint64_t)OPEN_MS * 1000000, cancel, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "start of the shell");
    if (!s->marked || strncmp(s->marker.text, " R ", 3) != 0)
        return mg_err_set(err, MG_EIO, "the shell of the sandbox ended at once: bash needs a working /bin/sh there");
    keep_identity(s, s->marker.text);
    return MG_OK;
}

mg_rc mg_shell_open(const struct mg_tool_ops *ops, void *box, struct mg_cancel *cancel, struct mg_shell **ret,
                    struct mg_err *err)
{
    static const char *const ENV[] = {"TERM=dumb", NULL};
    struct mg_shell *s = mg_xcalloc(1, sizeof(*s));
    uint8_t random[MG_MARKER_SECRET / 2];
    char a[HALF + 1] = "";

    *s = (struct mg_shell){.ops = ops, .box = box, .pending = MG_BUF_INIT(PENDING_MAX)};
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), s->secret);
    mg_marker_init(&s->marker, s->secret);
    memcpy(a, s->secret, HALF);
    const char *argv[] = {"/bin/sh", "-c", OUTER, "mango-shell", a, s->secret + HALF, NULL};
    mg_rc rc = ops->proc_open(box, argv, ENV, &s->proc, err);
    if (rc == MG_OK)
        rc = greet(s, cancel, err);
    if (rc < 0) {
        mg_shell_close(s);
        return rc;
    }
    *ret = s;
    return MG_OK;
}

void mg_shell_close(struct mg_shell *s)
{
    if (!s)
        return;
    if (s->proc)
        s->ops->proc_close(s->proc);
    mg_buf_done(&s->pending);
    free(s);
}

/* Sends one round of signals. False when that is of no use: the process is another one now, or cannot be reached. */
static bool signal_foreground(struct mg_shell *s, const char *name, uint64_t end_ns)
{
    struct mg_exec_status st = {0};
    uint64_t limit_ns = mg_now_ns() + (uint64_t)SIGNAL_MS * 1000000;

    if (!s->pid[0])
        return false;
    const char *argv[] = {"/bin/sh", "-c", STOP, "mango-stop", s->pid, s->start, name, NULL};
    struct mg_exec_req req = {.argv = argv, .deadline_ns = limit_ns < end_ns ? limit_ns : end_ns};
    mg_rc rc = s->ops->exec(s->box, &req, &st, NULL);
    return rc == MG_ETIMEOUT || (rc == MG_OK && (st.timed_out || (st.exited && st.exit_code == 0)));
}

/* Ends what the command runs and waits for the shell to come back. True when it did. */
static bool stop_command(struct mg_shell *s, unsigned settle_ms)
{
    uint64_t end = mg_now_ns() + (uint64_t)settle_ms * 1000000;
    const char *name = "TERM";

    while (mg_now_ns() < end && signal_foreground(s, name, end)) {
        uint64_t round = mg_now_ns() + (uint64_t)ROUND_MS * 1000000;
        mg_rc rc = read_marker(s, round < end ? round : end, NULL, NULL);
        if (rc != MG_ETIMEOUT)
            return rc == MG_OK && s->marked && s->marker.text[1] == 'D';
        name = "KILL";
    }
    return false;
}

static void compose(const struct mg_shell *s, struct mg_sv command, struct mg_buf *text)
{
    mg_buf_str(text, ":\nmango_command="); /* a signal of the last timeout that comes late is taken here */
    mg_shell_quote(text, command);
    mg_buf_str(text, s->sourced ? RUN_SOURCED : RUN_PLAIN);
    mg_buf_printf(
        text,
        "{ command printf '\\036%%s%%s D %llu %%d\\036\\n' %.*s %s \"$?\"; unset mango_command mango_in; set +aeuxvn; "
        "} 2>/dev/null\n",
        (unsigned long long)s->call, HALF, s->secret, s->secret + HALF);
}

/* What the marker says. */
static void judge(struct mg_shell *s, struct mg_shell_end *ret)
{
    unsigned long long call = 0;
    int status = -1;

    *ret = (struct mg_shell_end){.how = MG_SHELL_EXITED, .status = -1, .lost = true};
    if (!s->marked)
        return;
    if (sscanf(s->marker.text, " D %llu %d", &call, &status) == 2 && call == s->call)
        *ret = (struct mg_shell_end){.how = MG_SHELL_DONE, .status = status};
    else if (sscanf(s->marker.text, " X %d", &status) == 1)
        ret->status = status;
}

mg_rc mg_shell_run(struct mg_shell *s, struct mg_sv command, uint64_t deadline_ns, struct mg_cancel *cancel,
                   struct mg_output *out, struct mg_shell_end *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(STDIN_MAX);

    *ret = (struct mg_shell_end){.how = MG_SHELL_EXITED, .status = -1, .lost = true};
    s->call++;
    s->out = out;
    compose(s, command, &text);
    if (!mg_buf_ok(&text))
        return mg_err_set(err, MG_ETOOBIG, "the command has more than %d bytes: write it to a file and run that",
                          STDIN_MAX);
    ret->unsent = has_ended(s) || s->ops->proc_write(s->proc, mg_buf_view(&text), NULL) < 0;
    mg_rc rc = ret->unsent ? MG_OK : read_marker(s, deadline_ns, cancel, err);
    if (rc == MG_OK && !ret->unsent) {
        judge(s, ret);
    } else if (rc == MG_ETIMEOUT || rc == MG_ECANCELED) {
        out->closed = true;
        bool back = stop_command(s, rc == MG_ETIMEOUT ? SETTLE_MS : SETTLE_CANCEL_MS);
        *ret = (struct mg_shell_end){.how = MG_SHELL_TIMEOUT, .status = -1, .lost = !back};
    }
    s->out = NULL;
    return rc == MG_ETIMEOUT ? MG_OK : rc;
}
