#include <stdio.h>
#include <string.h>

#include "docker/plain.h"

/* A container without mango-box, from its first use by this process on. */

enum { READY_MS = 20000 /* for one exec: 65 ms, on a busy host a hundred times that */ };

/* Takes the container over: nothing that an earlier server started goes on. */
static const char takeover[] =
    "kill -KILL -1 2>/dev/null; rm -rf -- \"$1\"/.mango-write; command -v tar >/dev/null && "
    "echo tar; s=$(command -v setsid) && \"$s\" -f -w true 2>/dev/null && echo \"setsid=$s\"";

mango_status plain_ready(struct box *b, const struct mango_call *call)
{
    struct docker *d = b->docker;
    char said[256];
    int code;
    pthread_mutex_lock(&b->start);
    pthread_mutex_lock(&b->live.lock);
    bool ready = b->plain_ready, dying = b->live.dying, paused = b->paused;
    pthread_mutex_unlock(&b->live.lock);
    mango_status s = MANGO_OK;
    if (dying)
        s = fail(d->host, call, MANGO_EGONE, "the sandbox is being removed");
    else if (paused)
        s = fail(d->host, call, MANGO_EINVALID, "the sandbox is paused; resume it first");
    if (s == MANGO_OK && !ready) {
        struct mango_sv root = sv_z(b->root);
        const struct plain_spec spec = {.script = takeover, .args = &root, .n_args = 1};
        struct mango_call own = call_within(d, call, READY_MS);
        s = plain_exec_run(d, &own, b->live.id, &spec, said, sizeof(said), &code);
        if (s == MANGO_ENOENT && (s = box_revive(b, call)) == MANGO_OK)
            s = plain_exec_run(d, &own, b->live.id, &spec, said, sizeof(said), &code);
        if (s == MANGO_ENOENT)
            s = fail(d->host, call, MANGO_ERETRY, "the container %s stops at once after its start", b->live.id);
        if (s == MANGO_OK && (code == 126 || code == 127) && said[0])
            s = fail(d->host, call, MANGO_EUNSUPPORTED, "the image cannot run /bin/sh: %.200s", said);
        const char *setsid = strstr(said, "setsid=");
        const char *const relay[] = {BOX_PATH, "relay", NULL};
        if (s == MANGO_OK && b->limited)
            s = plain_detached(d, &own, b->live.id, relay);
        snprintf(b->setsid, sizeof(b->setsid), "%.*s", setsid ? (int)strcspn(setsid + 7, "\n") : 0,
                 setsid ? setsid + 7 : "");
        pthread_mutex_lock(&b->live.lock);
        b->plain_ready = s == MANGO_OK;
        b->has_tar = strstr(said, "tar\n") != NULL;
        pthread_mutex_unlock(&b->live.lock);
    }
    pthread_mutex_unlock(&b->start);
    return s;
}

mango_status plain_begin(struct box *b, const struct mango_call *call, const struct plain_spec *spec,
                         struct plain_exec *ret)
{
    mango_status s = plain_ready(b, call);
    if (s == MANGO_OK)
        s = plain_exec_start(b->docker, call, b->live.id, spec, ret);
    if (s != MANGO_ENOENT)
        return s;
    pthread_mutex_lock(&b->live.lock);
    b->plain_ready = false; /* it has stopped since */
    pthread_mutex_unlock(&b->live.lock);
    s = plain_ready(b, call);
    if (s == MANGO_OK)
        s = plain_exec_start(b->docker, call, b->live.id, spec, ret);
    return s == MANGO_ENOENT ? fail(b->docker->host, call, MANGO_ERETRY, "the container %s does not run", b->live.id)
                             : s;
}
