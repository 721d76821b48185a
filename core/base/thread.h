/* Threads that leave signals to the program's main one, and waiting until a time. */
#ifndef MG_BASE_THREAD_H
#define MG_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* pthread_create, with every signal blocked in the new thread: they are the main thread's, and a write to a broken
 * connection must not raise SIGPIPE in the others. 0 or an errno value. */
int mg_thread_start(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);

/* A condition for mg_cond_wait_until. */
void mg_cond_init(pthread_cond_t *c);
/* With lock held. until_ns is a time of mg_now_ns. False: it has come. Returns early now and then, as conditions do. */
bool mg_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

#endif
