#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "docker/plain.h"

/* Files without mango-box: shell scripts, run as the user of the commands. The Engine's archives are not used: it opens
 * their paths as root, follows the links that a command has planted, has no ranges, and writes in place.
 *
 * A script walks to the folder one name at a time, stands in it, and looks where it stands: a link that is swapped
 * meanwhile cannot lead it elsewhere. What it opens is looked at once more through /proc/self/fd. A write goes into
 * .mango-write below the root first, and is moved to its name when its size is the right one. Exit codes are errnos. */

enum {
    PIECE = 64 * 1024,
    SCRIPT_MAX = 4096,
    SAID_MAX = 512,
    END_MS = 20000, /* for a script to end when its work is done or given up */
};

/* $1 root, $2 path; makes folders where m is set. Ends in the folder, with the last name in p. */
#define WALK                                                                                                           \
    "cd -P -- \"$1\" || exit 2; r=$PWD p=$2 h=0; u() { case $PWD/ in \"$r\"/*) ;; *) exit 18 ;; esac; }\n"             \
    "walk() { case $p in \"$r\"/*) cd -P -- \"$r\"; p=${p#\"$r\"/} ;; \"$r\") cd -P -- \"$r\"; p=. ;; /*) exit 18 ;; " \
    "esac\n"                                                                                                           \
    "while :; do case $p in */*) ;; *) break ;; esac; c=${p%%/*} p=${p#*/}\n"                                          \
    "[ \"$c\" ] || continue\n"                                                                                         \
    "[ \"$m\" ] && [ ! -e \"./$c\" ] && [ ! -L \"./$c\" ] && mkdir -- \"./$c\" 2>/dev/null\n"                          \
    "cd -P -- \"./$c\" 2>/dev/null || { [ -d \"./$c\" ] && exit 13; [ -e \"./$c\" ] && exit 20\n"                      \
    "[ -L \"./$c\" ] && exit 40; [ ${#c} -gt 255 ] && exit 36; [ \"$m\" ] && exit 13; exit 2; }; u; done\n"            \
    "case $p in '') p=. ;; ..) cd -P ..; u; p=. ;; esac; }\n"                                                          \
    "goal() { walk; while [ -L \"./$p\" ]; do h=$((h+1)); [ $h -gt 40 ] && exit 40; p=$(readlink \"./$p\" && echo "    \
    "x)\n"                                                                                                             \
    "p=${p%?x}; walk; done; }\n"
#define KINDS                                                                                                   \
    "kinds() { [ -e \"./$p\" ] || { [ ${#p} -gt 255 ] && exit 36; exit 2; }; [ -d \"./$p\" ] && exit 21; [ -f " \
    "\"./$p\" ] || exit 22; }\n"

/* $3 offset, $4 bytes. */
static const char reader[] = WALK KINDS
    "m=; goal; kinds; [ -r \"./$p\" ] || exit 13; exec 5<\"./$p\" || exit 13\n"
    "case $(readlink /proc/self/fd/5) in \"$r\"/*) ;; *) exit 18 ;; esac; [ -f /proc/self/fd/5 ] || exit 22\n"
    "if [ \"$3\" = 0 ]; then head -c \"$4\" <&5; else tail -c \"+$(($3+1))\" <&5 | head -c \"$4\"; fi";

/* $3 number, $4 mode of a new file, $5 its size, -1: not known, then 0 is written where it is kept. */
static const char writer[] = WALK KINDS
    "m=1; goal; [ \"$p\" = . ] && exit 21; t=$r/.mango-write/$3\n"
    "if [ -e \"./$p\" ]; then kinds; w=$(stat -c %a \"./$p\")\n"
    "case $w in *[2367]??|*[2367]?|*[2367]) ;; *) exit 30 ;; esac; [ -w \"./$p\" ] || exit 30; else w=$4; fi\n"
    "[ ${#p} -gt 255 ] && exit 36; [ -w . ] || exit 13\n"
    "(cd -P -- \"$r\"; mkdir .mango-write 2>/dev/null; cd -P ./.mango-write && [ \"$PWD\" = \"$r/.mango-write\" ]) || "
    "exit 13\n"
    "set -C; e=$(LC_ALL=C cat 2>&1 >\"$t\") || { rm -f \"$t\"; case $e in *'No space'*) exit 28 ;; *uota*) exit 122 ;; "
    "*'too large'*) exit 27 ;; esac; echo \"$e\" >&2; exit 5; }; set +C\n"
    "s=$(($(wc -c <\"$t\")))\n"
    "if [ \"$5\" = -1 ]; then echo \"$s\"; exit 0; fi\n"
    "[ \"$s\" = \"$5\" ] || { rm -f \"$t\"; rmdir \"$r/.mango-write\" 2>/dev/null; exit 61; }\n"
    "chmod \"$w\" \"$t\" && { mv -fT -- \"$t\" \"./$p\" 2>/dev/null || mv -f -- \"$t\" \"./$p\"; } || { rm -f \"$t\"; "
    "exit 5; }\n"
    "rmdir \"$r/.mango-write\" 2>/dev/null; exit 0";
/* The second half where the size was not known. $6: yes, or no. */
static const char finisher[] = WALK KINDS "m=1; goal; t=$r/.mango-write/$3; if [ \"$6\" = no ]; then rm -f \"$t\"; "
                                          "rmdir \"$r/.mango-write\" 2>/dev/null; exit 61; fi\n"
                                          "if [ -e \"./$p\" ]; then kinds; w=$(stat -c %a \"./$p\"); else w=$4; fi\n"
                                          "chmod \"$w\" \"$t\" && { mv -fT -- \"$t\" \"./$p\" 2>/dev/null || mv -f -- "
                                          "\"$t\" \"./$p\"; } || { rm -f \"$t\"; exit 5; }\n"
                                          "rmdir \"$r/.mango-write\" 2>/dev/null; exit 0";

/* $3: 1 to show a link itself. */
static const char looker[] =
    WALK "m=; walk; l() { stat -c '%f %s %Y' \"./$p\" && exit 0; [ ${#p} -gt 255 ] && exit 36; exit 2; }\n"
         "[ \"$3\" = 1 ] && l; d=$PWD q=$p; [ -L \"./$p\" ] || l\n"
         "(goal; l) 2>/dev/null || { e=$?; cd \"$d\" && p=$q; l; }";

static mango_status bad(const struct box *b, const struct mango_call *call, int code, struct mango_sv path,
                        const char *words)
{
    switch (code) {
    case 22:
        return fail_path_as(b->docker->host, call, EINVAL, path, sv_z("is no regular file"));
    case 30:
        return fail_path_as(b->docker->host, call, EACCES, path, sv_z("is read-only; change its mode first"));
    case EIO:
        return fail(b->docker->host, call, MANGO_EINTERNAL, "a script in the container failed: %.300s", words);
    case 127:
        return fail(b->docker->host, call, MANGO_EUNSUPPORTED, "a program is missing in the image: %.200s", words);
    case -1:
        return fail(b->docker->host, call, MANGO_ERETRY, "the connection into the container was lost");
    default:
        return fail_path(b->docker->host, call, code, path);
    }
}

/* Paths that cannot be: told before anything is started. */
static mango_status check_path(const struct box *b, const struct mango_call *call, struct mango_sv path)
{
    if (path.len > MUX_PATH_MAX)
        return fail_path(b->docker->host, call, ENAMETOOLONG, path);
    return path.len && memchr(path.ptr, '\0', path.len) ? fail_path(b->docker->host, call, EINVAL, path) : MANGO_OK;
}

/* One script that moves content. */
struct move {
    struct box *box;
    const struct mango_call *call;
    struct plain_exec exec;
    struct plain_frames frames;
    char *buf;
    char words[SAID_MAX]; /* of its standard error and the Engine */
    size_t n_words;
};

static void keep_words(struct move *m, struct mango_sv s)
{
    size_t room = SAID_MAX - 1 - m->n_words, take = s.len < room ? s.len : room;
    memcpy(m->words + m->n_words, s.ptr, take);
    m->n_words += take;
}

static void move_done(struct move *m)
{
    if (m->exec.conn)
        m->box->docker->host->conn_close(m->box->docker->host, m->exec.conn);
    m->exec.conn = 0;
    free(m->buf);
    m->buf = NULL;
}

static mango_status move_begin(struct move *m, const char *script, const struct mango_sv *args, uint64_t n, bool input)
{
    const struct plain_spec spec = {.script = script, .args = args, .n_args = n, .input = input};
    if (!m->buf && !(m->buf = malloc(PIECE)))
        return fail(m->box->docker->host, m->call, MANGO_ERETRY, "out of memory");
    return plain_begin(m->box, m->call, &spec, &m->exec);
}

/* Output to sink until the end; what the sink does not want ends it. */
static mango_status move_out(struct move *m, const struct mango_call *call, mango_sink_fn *sink, void *ctx,
                             uint64_t *ret_bytes)
{
    const struct mango_host *h = m->box->docker->host;
    mango_status s = MANGO_OK;
    *ret_bytes = 0;
    for (uint64_t n = 1; s == MANGO_OK && n > 0;) {
        struct mango_sv piece;
        const char *p = m->buf;
        s = h->conn_read(h, call, m->exec.conn, m->buf, PIECE, &n);
        uint64_t left = s == MANGO_OK ? n : 0;
        for (int stream; (stream = plain_frame(&m->frames, &p, &left, &piece)) >= 0;) {
            if (stream != 1)
                keep_words(m, piece);
            else if (sink && sink(ctx, 0, piece.ptr, piece.len) != 0)
                return MANGO_OK;
            *ret_bytes += stream == 1 ? piece.len : 0;
        }
    }
    if (s == MANGO_ETIMEOUT)
        return fail(h, call, s, "the sandbox did not answer in time");
    return s < 0 && s != MANGO_ECANCELED ? fail(h, call, MANGO_ERETRY, "the connection into the container was lost")
                                         : s;
}

static mango_status move_end(struct move *m, struct mango_sv path)
{
    int code = -1;
    (void)plain_exec_ended(m->box->docker, m->call, m->exec.id, &code);
    return code == 0 ? MANGO_OK : bad(m->box, m->call, code, path, m->words);
}

/* ---- read ---- */

struct given {
    mango_sink_fn *sink;
    void *ctx;
    bool stopped;
};

static int32_t give(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct given *g = ctx;
    int32_t stop = g->sink(g->ctx, stream, p, n);
    g->stopped |= stop != 0;
    return stop;
}

mango_status plain_read(struct box *b, const struct mango_call *call, const struct mango_read_req *req,
                        int32_t *ret_eof)
{
    char offset[24], max[24];
    struct move m = {.box = b, .call = call};
    struct given g = {.sink = req->sink, .ctx = req->sink_ctx};
    uint64_t bytes = 0;
    snprintf(offset, sizeof(offset), "%llu", (unsigned long long)req->offset);
    snprintf(max, sizeof(max), "%llu", (unsigned long long)req->max);
    const struct mango_sv args[] = {sv_z(b->root), req->path, sv_z(offset), sv_z(max)};
    mango_status s = check_path(b, call, req->path);
    if (s == MANGO_OK)
        s = move_begin(&m, reader, args, 4, false);
    if (s == MANGO_OK)
        s = move_out(&m, call, give, &g, &bytes);
    if (s == MANGO_OK && !g.stopped)
        s = move_end(&m, req->path);
    *ret_eof = s == MANGO_OK && !g.stopped && bytes < req->max;
    move_done(&m);
    return s;
}

/* ---- write ---- */

static mango_status send_all(struct move *m, struct mango_sv data)
{
    const struct mango_host *h = m->box->docker->host;
    return data.len ? h->conn_write(h, m->call, m->exec.conn, data.ptr, data.len) : MANGO_OK;
}

/* *ret_left: the source gave up; then the script must see that the content is not whole. */
static mango_status send_source(struct move *m, const struct mango_write_req *req, int64_t *ret_total)
{
    char *piece = malloc(PIECE);
    mango_status s = piece ? MANGO_OK : MANGO_ERETRY;
    while (s == MANGO_OK) {
        int64_t n = req->source(req->source_ctx, piece, PIECE);
        if (n < 0)
            s = (mango_status)n;
        if (n <= 0)
            break;
        *ret_total += n;
        if (send_all(m, (struct mango_sv){piece, (uint64_t)n}) < 0)
            break; /* its exit code tells why it reads no more */
    }
    free(piece);
    return s;
}

static int32_t drop(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)ctx, (void)stream, (void)p, (void)n;
    return 0;
}

static mango_status finish(struct box *b, const struct mango_call *call, const struct mango_sv *args, bool yes,
                           struct mango_sv path)
{
    struct move m = {.box = b, .call = call};
    struct mango_sv all[6];
    uint64_t bytes;
    memcpy(all, args, 5 * sizeof(*all));
    all[5] = sv_z(yes ? "yes" : "no");
    mango_status s = move_begin(&m, finisher, all, 6, false);
    if (s == MANGO_OK)
        s = move_out(&m, call, drop, NULL, &bytes);
    if (s == MANGO_OK && yes)
        s = move_end(&m, path);
    move_done(&m);
    return s;
}

mango_status plain_write(struct box *b, const struct mango_call *call, const struct mango_write_req *req)
{
    const struct mango_host *h = b->docker->host;
    char number[PLAIN_NUMBER_LEN + 1], mode[16], size[24];
    int64_t known = req->source ? req->source_len : (int64_t)req->content.len, total = 0;
    struct move m = {.box = b, .call = call};
    uint64_t bytes;
    random_hex(number, PLAIN_NUMBER_LEN);
    snprintf(mode, sizeof(mode), "%o", req->mode ? req->mode & 07777 : 0644);
    snprintf(size, sizeof(size), "%lld", (long long)(known < 0 ? -1 : known));
    const struct mango_sv args[] = {sv_z(b->root), req->path, sv_z(number), sv_z(mode), sv_z(size)};
    mango_status s = check_path(b, call, req->path), source = MANGO_OK;
    if (s == MANGO_OK)
        s = move_begin(&m, writer, args, 5, true);
    if (s < 0) {
        move_done(&m);
        return s;
    }
    if (req->source)
        source = send_source(&m, req, &total);
    else if (send_all(&m, req->content) == MANGO_OK)
        total = (int64_t)req->content.len;
    (void)h->conn_shutdown(h, call, m.exec.conn);
    struct mango_call own = call_within(b->docker, call, END_MS);
    if (source < 0)
        own.token = NULL; /* so that nothing is left of it */
    s = move_out(&m, &own, drop, NULL, &bytes);
    if (s == MANGO_OK)
        s = move_end(&m, req->path);
    move_done(&m);
    bool whole = source == MANGO_OK && (known < 0 || total == known);
    if (known < 0) {
        bool yes = whole && s == MANGO_OK;
        struct mango_call last = call_within(b->docker, call, END_MS);
        last.token = yes ? call->token : NULL;
        mango_status f = finish(b, &last, args, yes, req->path);
        s = yes ? f : s;
    }
    if (source < 0)
        return source;
    return whole || s < 0 ? s
                          : fail(h, call, MANGO_EINVALID, "the content ended after %lld of %lld bytes",
                                 (long long)total, (long long)known);
}

/* ---- stat ---- */

mango_status plain_stat(struct box *b, const struct mango_call *call, struct mango_sv path, uint32_t flags,
                        struct mango_stat *ret)
{
    char said[SAID_MAX];
    int code = -1;
    unsigned mode = 0;
    unsigned long long size = 0;
    long long seconds = 0;
    const struct mango_sv args[] = {sv_z(b->root), path, sv_z(flags & MANGO_STAT_NOFOLLOW ? "1" : "0")};
    const struct plain_spec spec = {.script = looker, .args = args, .n_args = 3};
    mango_status s = check_path(b, call, path);
    if (s == MANGO_OK)
        s = plain_ready(b, call);
    if (s == MANGO_OK)
        s = plain_exec_run(b->docker, call, b->live.id, &spec, said, sizeof(said), &code);
    if (s == MANGO_ENOENT)
        return fail(b->docker->host, call, MANGO_ERETRY, "the container %s does not run", b->live.id);
    if (s < 0)
        return s;
    if (code != 0)
        return bad(b, call, code, path, said);
    if (sscanf(said, "%x %llu %lld", &mode, &size, &seconds) != 3) /* NOLINT(cert-err34-c): stat's own line */
        return fail(b->docker->host, call, MANGO_EINTERNAL, "stat in the container said something else: %.100s", said);
    ret->kind = S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'o';
    ret->mode = mode & 07777;
    ret->size = size;
    ret->mtime_us = seconds * 1000000;
    return MANGO_OK;
}

/* ---- archives ---- */

/* $1 root, $2 folder with "/." behind it. */
static const char packer[] =
    WALK "m=; walk; f=--format=pax; tar $f --version >/dev/null 2>&1 || f=; exec tar $f -cf - .";
static const char unpacker[] = WALK "m=1; walk; exec tar -xpf -";

mango_status plain_archive(struct box *b, const struct mango_call *call, bool out, struct mango_sv path,
                           struct text *folder, struct mango_sv argv[PLAIN_ARCHIVE_ARGS])
{
    mango_status s = check_path(b, call, path);
    if (s == MANGO_OK)
        s = plain_ready(b, call);
    if (s < 0)
        return s;
    pthread_mutex_lock(&b->live.lock);
    bool has_tar = b->has_tar;
    pthread_mutex_unlock(&b->live.lock);
    if (!has_tar)
        return fail(b->docker->host, call, MANGO_EUNSUPPORTED, "archives need the program tar in the image");
    text_sv(folder, path);
    text_add(folder, "/.");
    const struct mango_sv all[PLAIN_ARCHIVE_ARGS] = {sv_z("/bin/sh"), sv_z("-c"),    sv_z(out ? packer : unpacker),
                                                     sv_z("mango"),   sv_z(b->root), text_view(folder)};
    memcpy(argv, all, sizeof(all));
    return folder->bad ? fail(b->docker->host, call, MANGO_ERETRY, "out of memory") : MANGO_OK;
}
