#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

int mg_thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(ret, attr, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

void mg_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* mg_now_ns's */
    (void)pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
}

bool mg_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec t = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(c, lock, &t) != ETIMEDOUT;
}
