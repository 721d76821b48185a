/* A program over libmango-worker for the tests: serves an environment with custom tools written in C.
 *
 *   drive-worker        ANTHROPIC_BASE_URL, _ENVIRONMENT_ID, _ENVIRONMENT_KEY, WORKER_DIR and WORKER_IDLE_MS say what it serves; ends on SIGTERM
 *
 * Tools: weather {"city"}; picture (an image block); fails; silent (says nothing); slow (waits until it is cancelled); stubborn (does not
 * obey the cancel); bash (replaces the built-in one where WORKER_OWN_BASH is set). */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/worker.h"

static int32_t say(struct mango_tool_reply *reply, const char *text)
{
    return mango_reply_text(reply, text, strlen(text));
}

static int32_t weather(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    char text[256];
    (void)ctx;
    (void)snprintf(text, sizeof(text), "sunny in %.*s, asked by %s of %s", (int)call->input_len, call->input, call->id,
                   call->session_id);
    return say(reply, text);
}

static int32_t picture(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    static const char block[] =
        "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":"
        "\"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==\"}}";
    (void)ctx;
    (void)call;
    return say(reply, "a picture:") < 0 || mango_reply_block(reply, "[]", 2) == 0
               ? -1
               : mango_reply_block(reply, block, sizeof(block) - 1);
}

static int32_t fails(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    (void)ctx;
    (void)call;
    (void)say(reply, "it broke");
    return -1;
}

static int32_t silent(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    (void)ctx;
    (void)call;
    (void)reply;
    return 0;
}

static int32_t slow(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    struct pollfd p = {.fd = call->cancel_fd, .events = POLLIN};
    (void)ctx;
    (void)poll(&p, 1, -1);
    return say(reply, "cancelled");
}

static int32_t stubborn(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    (void)ctx;
    (void)call;
    (void)reply;
    for (unsigned left = 3600; left > 0;)
        left = sleep(left);
    return 0;
}

static int32_t own_bash(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    (void)ctx;
    (void)call;
    return say(reply, "a shell of the program's own");
}

static void log_line(void *ctx, int32_t level, const char *line, size_t len)
{
    (void)ctx;
    (void)level;
    fprintf(stderr, "%.*s\n", (int)len, line);
}

static void *stop_at_signal(void *arg)
{
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    (void)sigwait(&set, &number);
    mango_worker_stop(arg);
    return NULL;
}

int main(void)
{
    struct mango_tool tools[] = {
        {.struct_size = sizeof(tools[0]), .name = "weather", .run = weather},
        {.struct_size = sizeof(tools[0]), .name = "picture", .run = picture},
        {.struct_size = sizeof(tools[0]), .name = "fails", .run = fails},
        {.struct_size = sizeof(tools[0]), .name = "silent", .run = silent},
        {.struct_size = sizeof(tools[0]), .name = "slow", .run = slow, .timeout_ms = 1000},
        {.struct_size = sizeof(tools[0]), .name = "stubborn", .run = stubborn, .timeout_ms = 100},
        {.struct_size = sizeof(tools[0]), .name = "bash", .run = own_bash},
    };
    const char *idle = getenv("WORKER_IDLE_MS");
    struct mango_worker_options o = {
        .struct_size = sizeof(o),
        .max_idle_ms = idle ? (uint32_t)strtoul(idle, NULL, 10) : 0,
        .base_url = getenv("ANTHROPIC_BASE_URL"),
        .environment_id = getenv("ANTHROPIC_ENVIRONMENT_ID"),
        .environment_key = getenv("ANTHROPIC_ENVIRONMENT_KEY"),
        .workdir = getenv("WORKER_DIR"),
        .tools = tools,
        .n_tools = sizeof(tools) / sizeof(tools[0]) - (getenv("WORKER_OWN_BASH") ? 0 : 1),
        .poll_gap_ms = 100,
        .log = log_line,
    };
    struct mango_worker *w;
    char err[512] = "";
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (mango_worker_open(&o, &w, err, sizeof(err)) != 0 || pthread_create(&thread, NULL, stop_at_signal, w) != 0) {
        fprintf(stderr, "drive-worker: %s\n", err);
        return 1;
    }
    int32_t rc = mango_worker_run(w, err, sizeof(err));
    fprintf(stderr, "drive-worker: ended with %d %s\n", rc, err);
    if (rc != 0)
        _exit(1); /* a tool may still run */
    (void)kill(getpid(), SIGTERM);
    pthread_join(thread, NULL);
    mango_worker_close(w);
    return 0;
}
