/* What others write into the words of waiting costs a wait 5 ms at most, and little CPU:
 * posted, asleep, the bell, a place. */
#include <limits.h>
#include <sched.h>
#include <time.h>

#include "bridge.h"

enum { WAITS = 20 };

static sem_t bell;
static _Atomic uint32_t asleep;
static _Atomic bool news, ending;

static bool look(void *context) { return (void)context, atomic_load(&news); }

/* The word that a waker leaves is any number. */
static void posted_may_be_anything(void) {
    static const uint64_t words[] = {0, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_ADAPTIVE);
    int64_t before = w.statistics.wake_cost;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        shmb_waiter_learn(&w, words[i], shmb_clock_ns());
        shmb_waiter_learn(&w, words[i], INT64_MAX);
    }
    CHECK(w.statistics.wake_cost == before);
}

static void *tell_and_ring(void *unused) {
    static _Atomic uint64_t posted;
    atomic_store(&news, true);
    shmb_waiter_wake(&asleep, &bell, &posted);
    return unused;
}

static int looked_from, slept_on, went, stayed;

/* Of a wait that finds nothing: the last look but one comes just before the sleep. */
static bool look_where(void *context) {
    cpu_set_t now;
    slept_on = looked_from;
    looked_from = sched_getcpu();
    stayed += sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1;
    return (void)context, false;
}

/* Waits, asked from another CPU or from its own. Afterwards it may run anywhere again. */
static void sleep_when_asked(struct waiter *w, struct wait_hint *asker, bool here) {
    cpu_set_t all, now;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int i = went = stayed = 0; i < WAITS; i++) {
        struct waiter fresh = *w;
        int before = sched_getcpu(), from = 0;
        while (!CPU_ISSET(from, &all) || (from == before) != here) from++;
        atomic_store(&asker->cpu, (uint32_t)from);
        shmb_waiter_wait(&fresh, look_where, NULL, &asleep, &bell, shmb_clock_ns() + 1000 * 1000);
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &all));
        went += slept_on != before;
    }
}

static void a_host_sleeps_where_it_is_asked_next(void) {
    struct wait_hint mine = {0}, asker = {0};
    struct host_line host = {0};
    struct waiter w;
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) == 1) return;
    CHECK(sem_init(&bell, 0, 0) == 0);
    shmb_waiter_init(&w, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&w, &mine);
    w.statistics.yields_from = INT64_MAX;
    w.host = &host;
    w.asker = &asker;
    atomic_store(&host.runners, (uint32_t)__builtin_popcountll(atomic_load(&mine.cpus)));
    sleep_when_asked(&w, &asker, false);
    CHECK(went < WAITS / 2 && !stayed); /* it does not follow */
    w.loadavg = memfd_create("busy", 0);
    CHECK(write(w.loadavg, "0 0 0 9999/9999 1", 17) == 17);
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && !stayed); /* a runner for each CPU */
    atomic_store(&host.runners, 1);
    w.peer = &asker;
    sleep_when_asked(&w, &asker, false);
    CHECK(went < WAITS / 2 && !stayed); /* one runner: both sides spin */
    w.statistics.usual = 1000 * 1000;
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && !stayed); /* no idle CPU would wake it */
    CHECK(pwrite(w.loadavg, "0 0 0 0001/9999 1", 17, 0) == 17);
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && stayed >= WAITS / 2);
    atomic_store(&host.received, 5000);
    sleep_when_asked(&w, &asker, true);
    CHECK(went >= WAITS / 2 && !stayed); /* asked at once all the time, where it cannot spin */
    shmb_waiter_free(&w);
    sem_destroy(&bell);
}

/* One who says that it shares our CPU, or that runners crowd it, makes us yield or sleep: no wait
 * misses its news. */
static void places_and_counts_may_be_anything(void) {
    struct wait_hint mine, peer = {.cpus = UINT64_MAX};
    struct host_line host = {.runners = 0};
    struct waiter w;
    pthread_t waker;
    shmb_waiter_init(&w, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&w, &mine);
    w.peer = &peer;
    w.host = &host;
    CHECK(sem_init(&bell, 0, 0) == 0);
    for (int i = 0; i < WAITS; i++) {
        atomic_store(&news, false);
        atomic_store(&peer.cpu, i % 2 ? (uint32_t)sched_getcpu() : (uint32_t)i << 28);
        atomic_store(&peer.cpus, (uint64_t)i);
        atomic_store(&host.runners, i % 3 ? UINT32_MAX : 0);
        atomic_store(&host.received, (uint32_t)i << 28);
        pthread_create(&waker, NULL, tell_and_ring, NULL);
        while (shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) > WOKEN) continue;
        pthread_join(waker, NULL);
    }
    atomic_store(&news, false);
    sem_destroy(&bell);
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
    CHECK(sem_init(&bell, 0, INT_MAX) == 0);
    int64_t until = shmb_clock_ns() + 300 * 1000 * 1000, waits = 0, cpu = cpu_ns();
    for (; shmb_clock_ns() < until; waits++)
        shmb_waiter_wait(&w, look, NULL, &asleep, &bell, until);
    CHECK(waits < 2000 && cpu_ns() - cpu < 150 * 1000 * 1000);
    sem_destroy(&bell);
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
    pthread_t liar, waker;
    shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
    CHECK(sem_init(&bell, 0, 0) == 0);
    pthread_create(&liar, NULL, lower, NULL);
    int64_t began = shmb_clock_ns();
    for (int i = 0; i < WAITS; i++) {
        atomic_store(&news, false);
        pthread_create(&waker, NULL, tell, NULL);
        while (shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) > WOKEN) continue;
        pthread_join(waker, NULL);
    }
    CHECK(shmb_clock_ns() - began < WAITS * SLICE_NS / 2);
    atomic_store(&ending, true);
    pthread_join(liar, NULL);
    sem_destroy(&bell);
}

static void *lower_once(void *unused) {
    while (!atomic_load(&asleep)) sched_yield();
    atomic_store(&asleep, 0);
    atomic_store(&news, true);
    return unused;
}

/* Without looks in between it costs the rest of a slice. */
static void the_first_flag_that_someone_lowers_costs_no_slice(void) {
    pthread_t liar;
    CHECK(sem_init(&bell, 0, 0) == 0);
    int64_t began = shmb_clock_ns();
    for (int i = 0; i < WAITS; i++) {
        struct waiter w;
        shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
        atomic_store(&news, false);
        pthread_create(&liar, NULL, lower_once, NULL);
        CHECK(shmb_waiter_wait(&w, look, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
        pthread_join(liar, NULL);
    }
    CHECK(shmb_clock_ns() - began < WAITS * SLICE_NS / 2);
    sem_destroy(&bell);
}

int main(void) {
    posted_may_be_anything();
    a_host_sleeps_where_it_is_asked_next();
    places_and_counts_may_be_anything();
    a_bell_that_never_falls_silent_is_not_listened_to();
    a_flag_that_someone_lowers_costs_no_slice();
    the_first_flag_that_someone_lowers_costs_no_slice();
    return 0;
}
