/* What others write into the words of waiting costs a wait 5 ms at most, and little CPU:
 * asleep, the bell, a place. */
#include <sched.h>
#include <time.h>

#include "bridge.h"

enum { WAITS = 20 };

static struct semaphore bell;
static _Atomic uint32_t asleep;
static _Atomic bool news, ending;

static bool look(void *context) { return (void)context, atomic_load(&news); }

static void *tell_and_ring(void *unused) {
    atomic_store(&news, true);
    shmb_waiter_wake(&asleep, &bell);
    return unused;
}

/* One who says that it shares our CPU, or that runners crowd it, makes us sleep: no wait
 * misses its news. */
static void places_and_counts_may_be_anything(void) {
    struct wait_hint mine, peer = {.cpus = UINT64_MAX};
    struct host_line host = {.runners = 0};
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&w, &mine);
    w.peer = &peer;
    w.host = &host;
    for (int i = 0; i < WAITS; i++) {
        atomic_store(&news, false);
        atomic_store(&peer.cpu, i % 2 ? (uint32_t)sched_getcpu() : (uint32_t)i << 28);
        atomic_store(&peer.cpus, (uint64_t)i);
        atomic_store(&host.runners, i % 3 ? UINT32_MAX : 0);
        pthread_t waker = thread_start(tell_and_ring, NULL);
        while (shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) > WOKEN) continue;
        pthread_join(waker, NULL);
    }
    atomic_store(&news, false);
}

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A wait of 300 ms ends by its time, and not by rings without end. */
static void a_bell_that_never_falls_silent_is_not_listened_to(void) {
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
    atomic_store(&bell.count, UINT32_MAX);
    int64_t until = shmb_clock_ns() + 300 * 1000 * 1000, waits = 0, cpu = cpu_ns();
    for (; shmb_clock_ns() < until; waits++)
        shmb_waiter_wait(&w, look, NULL, &asleep, &bell, until);
    CHECK(waits < 2000 && cpu_ns() - cpu < 150 * 1000 * 1000);
}

static void *lower(void *unused) {
    while (!atomic_load(&ending)) {
        atomic_store(&asleep, 0);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
    }
    return unused;
}

/* As the waker does, which finds no flag. */
static void *tell(void *unused) {
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    atomic_store(&news, true);
    return unused;
}

/* Without the bound each takes a slice, 100 ms. */
static void a_flag_that_someone_lowers_costs_no_slice(void) {
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
    pthread_t liar = thread_start(lower, NULL);
    int64_t began = shmb_clock_ns();
    for (int i = 0; i < WAITS; i++) {
        atomic_store(&news, false);
        pthread_t waker = thread_start(tell, NULL);
        while (shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) > WOKEN) continue;
        pthread_join(waker, NULL);
    }
    CHECK(shmb_clock_ns() - began < WAITS * SLICE_NS / 2);
    atomic_store(&ending, true);
    pthread_join(liar, NULL);
}

static void *lower_once(void *unused) {
    while (!atomic_load(&asleep)) sched_yield();
    atomic_store(&asleep, 0);
    atomic_store(&news, true);
    return unused;
}

/* Without looks in between it costs the rest of a slice. */
static void the_first_flag_that_someone_lowers_costs_no_slice(void) {
    int64_t began = shmb_clock_ns();
    for (int i = 0; i < WAITS; i++) {
        struct waiter w;
        shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
        atomic_store(&news, false);
        pthread_t liar = thread_start(lower_once, NULL);
        CHECK(shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
        pthread_join(liar, NULL);
    }
    CHECK(shmb_clock_ns() - began < WAITS * SLICE_NS / 2);
}

int main(void) {
    places_and_counts_may_be_anything();
    a_bell_that_never_falls_silent_is_not_listened_to();
    a_flag_that_someone_lowers_costs_no_slice();
    the_first_flag_that_someone_lowers_costs_no_slice();
}
