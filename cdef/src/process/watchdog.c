#include "process/watchdog.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "process/library.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sooner; /* something ends sooner than the thread will wake */
static struct watched *all;
static int64_t wakes; /* when the thread wakes by itself */
static bool running;

/* The thread is not in a fork's child, nor those whose calls it watched. */
static void watchdog_in_child(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    all = NULL;
    running = false;
}

static void watchdog_prepare(void) { pthread_atfork(NULL, NULL, watchdog_in_child); }

/* Stops what is due; returns when the next one is. */
static int64_t stop_due(void) {
    int64_t next = INT64_MAX, now = shmb_clock_ns();
    for (struct watched *w = all; w; w = w->next) {
        if (w->until <= now) {
            w->stop(w->context);
            w->until = INT64_MAX;
        }
        if (w->until < next) next = w->until;
    }
    return next;
}

static void *watch(void *nothing) {
    pthread_mutex_lock(&mutex);
    for (;;) {
        wakes = stop_due();
        if (wakes == INT64_MAX) {
            pthread_cond_wait(&sooner, &mutex);
        } else {
            struct timespec at = timespec_of(wakes);
            pthread_cond_timedwait(&sooner, &mutex, &at);
        }
    }
    return nothing;
}

/* With the mutex. */
static bool watchdog_start(void) {
    pthread_t thread;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sooner, &monotonic);
    running = shmb_library_thread(&thread, watch);
    if (running) pthread_detach(thread);
    return running;
}

bool shmb_watchdog_begin(struct watched *w) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watchdog_prepare);
    pthread_mutex_lock(&mutex);
    bool watched = running || watchdog_start();
    if (watched) {
        w->next = all;
        w->link = &all;
        if (all) all->link = &w->next;
        all = w;
        if (w->until < wakes) pthread_cond_signal(&sooner);
    }
    pthread_mutex_unlock(&mutex);
    return watched;
}

void shmb_watchdog_end(struct watched *w) {
    pthread_mutex_lock(&mutex);
    *w->link = w->next;
    if (w->next) w->next->link = w->link;
    pthread_mutex_unlock(&mutex);
}
