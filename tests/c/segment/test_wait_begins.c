/* How a wait begins, by the table of docs/design.md, and what it learns for the next one. No check
 * depends on the speed of this machine. */
#include <sched.h>

#include "base/clock.h"
#include "bridge.h"

/* ns. Spinning is worth four wake-ups of 25 us. */
enum { WORTH = 100 * 1000, WAKE_UP = 25 * 1000, SHORT = 20 * 1000, LOOKS = 1024 };
enum sides { TOGETHER = 1, RUNNER = 2, HOT = 4, NO_YIELDS = 8 };

static struct waiter w;
static struct wait_hint mine, peer;
static struct host_line host;
static _Atomic uint32_t asleep;
static struct semaphore bell;
static int looks, us;

static bool never(void *context) { return looks++, false; }
static bool once_asleep(void *context) { return atomic_load(&asleep); }

/* Looks that take so long, and so do yields. */
static bool late(void *context) {
    if (w.mode == YIELDS && !atomic_load(&asleep)) looks++, usleep((useconds_t)us);
    return atomic_load(&asleep);
}

static bool once_it_yields(void *context) { return w.mode == YIELDS; }

/* The first look of a spin takes 2 ms. After 32 it sees that it was too long. */
static bool slow(void *context) {
    if (w.mode == SPINS && !looks++) usleep(2000);
    return false;
}

/* A side that may use two CPUs, as the other one may. */
static void start(shmb_wait policy, uint32_t runners, enum sides sides) {
    shmb_waiter_init(&w, policy);
    w.hint = &mine;
    w.host = &host;
    w.peer = sides & RUNNER ? &peer : NULL;
    atomic_store(&mine.cpus, sides & TOGETHER && !w.peer ? 1 : 3);
    atomic_store(&peer.cpus, 2);
    atomic_store(&peer.cpu, sides & TOGETHER ? (uint32_t)sched_getcpu() : UINT32_MAX);
    atomic_store(&host.runners, runners);
    atomic_store(&host.received, 1);
    w.statistics.counted = sides & HOT ? INT64_MAX / 2 : 0;
    w.statistics.yields_from = sides & NO_YIELDS ? INT64_MAX : 0;
    looks = 0;
}

/* How a wait begins whose time is over, if they usually take so long. */
static enum wait_mode begins(int64_t usual) {
    w.statistics.usual = usual;
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, 0) == SLICE_OVER);
    return w.mode;
}

static void a_wait_begins_as_the_table_says(void) {
    static const struct {
        uint32_t runners;
        enum sides sides;
        enum wait_mode mode;
        int64_t worth; /* if waits usually take as long, it sleeps instead */
    } rows[] = {
        {1, 0, SPINS, WORTH},
        {1, RUNNER | NO_YIELDS, SPINS, WORTH},
        {1, TOGETHER, YIELDS, 0},
        {1, TOGETHER | NO_YIELDS | HOT, SLEEPS, 0},
        {1, TOGETHER | RUNNER, YIELDS, 0},
        {1, TOGETHER | RUNNER | NO_YIELDS | HOT, SLEEPS, 0},
        {2, 0, SLEEPS, 0},
        {2, HOT, YIELDS, 0},
        {2, HOT | NO_YIELDS, SLEEPS, 0},
        {2, RUNNER | NO_YIELDS, SLEEPS, 0},
        {2, RUNNER | NO_YIELDS | HOT, SPINS_SHORTLY, 0},
        {3, 0, YIELDS, 0},
        {3, NO_YIELDS | HOT, SLEEPS, 0},
        {5, RUNNER | NO_YIELDS, SPINS, WORTH},
        {6, RUNNER | NO_YIELDS, SLEEPS, 0},
        {6, RUNNER | NO_YIELDS | HOT, SPINS_SHORTLY, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum wait_mode mode = rows[i].mode, long_ago = rows[i].worth ? SLEEPS : mode;
        start(SHMB_WAIT_DEFAULT, rows[i].runners, rows[i].sides);
        if (begins(rows[i].worth - !!rows[i].worth) != mode)
            fprintf(stderr, "row %zu: expected %d, found %d\n", i, (int)mode, (int)w.mode);
        CHECK(w.mode == mode);
        start(SHMB_WAIT_ADAPTIVE, rows[i].runners, rows[i].sides);
        CHECK(begins(rows[i].worth ? rows[i].worth : WORTH) == long_ago);
    }
    start(SHMB_WAIT_BLOCK, 1, 0);
    CHECK(begins(0) == SLEEPS && looks == 1 && !shmb_waiter_spins(&w));
    start(SHMB_WAIT_SPIN, 6, RUNNER);
    CHECK(begins(WORTH) == SPINS_ONLY && looks == LOOKS + 1 && shmb_waiter_spins(&w));
}

/* A host among as many runners as CPUs looks less often, one beside the other side once. */
static void who_waits_in_a_crowd_looks_less_often(void) {
    start(SHMB_WAIT_ADAPTIVE, 1, 0);
    CHECK(shmb_waiter_looks(&w, 60) == 60 && shmb_waiter_spins(&w));
    start(SHMB_WAIT_ADAPTIVE, 2, 0);
    CHECK(shmb_waiter_looks(&w, 60) == 20 && !shmb_waiter_spins(&w));
    start(SHMB_WAIT_ADAPTIVE, 9, TOGETHER | RUNNER);
    CHECK(shmb_waiter_looks(&w, 60) == 60 && !shmb_waiter_spins(&w));
    begins(0);
    CHECK(looks == LOOKS);
    begins(0);
    CHECK(looks == LOOKS + 1);
    atomic_store(&mine.cpus, 0);
    atomic_store(&host.runners, 1);
    w.peer = NULL;
    CHECK(begins(0) == YIELDS);
}

/* 100 yields, or one of 500 us, that bring no news: none for as long, then for 8 and 64 times as
 * long. News halve it. */
static void yields_that_fail_are_not_tried_for_a_while(void) {
    static const int64_t backoff[] = {1, 8, 64, 64};
    start(SHMB_WAIT_ADAPTIVE, 1, TOGETHER);
    for (int i = 0; i < 3; i++) {
        int64_t before = shmb_clock_ns();
        w.mode = SLEEPS;
        w.statistics.yields_from = looks = 0;
        us = i == 2 ? 1000 : 20;
        CHECK(shmb_waiter_wait(&w, late, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
        int64_t now = shmb_clock_ns();
        CHECK(w.mode == YIELDS && w.statistics.backoff == backoff[i + 1]);
        CHECK(looks <= (i == 2 ? 2 : 100));
        CHECK(w.statistics.yields_from > before + backoff[i] * 500 * 1000 &&
              w.statistics.yields_from <= now + backoff[i] * (now - before));
        CHECK(w.statistics.usual == 0);
    }
    static const int64_t halved[][2] = {{8, 4}, {1, 1}};
    for (int step = 0; step < 2; step++)
        for (int i = 0; !i || w.statistics.backoff != halved[step][1]; i++) {
            CHECK(i < 1000); /* where others compute, a yield may fail */
            w.mode = SLEEPS;
            w.statistics.yields_from = 0;
            w.statistics.backoff = halved[step][0];
            shmb_waiter_wait(&w, once_it_yields, NULL, &asleep, &bell, INT64_MAX);
        }
}

/* A wait that a sleep prolonged tells when it began; the wake-up does not count. */
static void a_wait_is_noted(void) {
    int64_t until;
    looks = 0;
    for (int i = 0; i < 9 && looks != 32 + 3; i++) { /* again if others compute on this CPU */
        start(SHMB_WAIT_ADAPTIVE, 1, 0);
        until = shmb_clock_ns() + 4000 * 1000;
        CHECK(shmb_waiter_wait(&w, slow, NULL, &asleep, &bell, until) == SLICE_OVER);
    }
    int64_t now = shmb_clock_ns(), since = (int64_t)atomic_load(&mine.since);
    CHECK(since >= until - 4000 * 1000 && (int)atomic_load(&mine.cpu) == sched_getcpu());
    CHECK(w.waits && w.statistics.waited >= until - since && w.statistics.waited <= now - since);
    CHECK(w.statistics.counted == since + WAKE_UP && w.statistics.received == 1);
    CHECK(w.statistics.usual == 2 * WORTH / 8);         /* of which more is not worth knowing */
    CHECK(looks == 32 + 3 && w.statistics.paused == 1); /* the last looks are a sleep's */
    w.statistics.usual = 2 * WORTH;
    shmb_waiter_wait(&w, never, NULL, &asleep, &bell, shmb_clock_ns() + 3000 * 1000);
    CHECK(w.statistics.usual == 2 * WORTH && (int64_t)atomic_load(&mine.since) == since);
    CHECK(shmb_waiter_wait(&w, once_asleep, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
    CHECK(!w.waits && !atomic_load(&asleep));
    begins(0);
    CHECK((int64_t)atomic_load(&mine.since) > since && w.waits);
    w.statistics.usual = 800;
    shmb_waiter_news(&w);
    CHECK(w.statistics.usual == 700 && !w.waits);
    start(SHMB_WAIT_BLOCK, 1, 0);
    shmb_waiter_wait(&w, never, NULL, &asleep, &bell, shmb_clock_ns() + 1000 * 1000);
    CHECK(w.statistics.usual == 0 && w.statistics.paused == 0);
    start(SHMB_WAIT_SPIN, 1, 0);
    until = shmb_clock_ns() + 1000 * 1000;
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, until) == SLICE_OVER);
    CHECK(shmb_clock_ns() >= until);
}

static void what_a_wake_up_takes_is_learned(void) {
    static const int costs[][2] = {{999, WAKE_UP}, {50001, WAKE_UP}, {1000, 22000}, {50000, 28125}};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        start(SHMB_WAIT_ADAPTIVE, 1, RUNNER);
        shmb_waiter_learn(&w, 5, 5 + costs[i][0]);
        CHECK(w.statistics.wake_cost == costs[i][1]);
    }
    start(SHMB_WAIT_ADAPTIVE, 1, TOGETHER | RUNNER);
    shmb_waiter_learn(&w, 5, 1005);
    CHECK(w.statistics.wake_cost == WAKE_UP);
    w.statistics.wake_cost = SHORT / 4 - 1; /* it spins for so long at least */
    peer.cpu = UINT32_MAX;
    CHECK(begins(SHORT - 1) == SPINS && begins(SHORT) == SLEEPS);
}

static _Atomic uint64_t posted;

static void *ring(void *unused) {
    while (!atomic_load(&asleep)) usleep(100);
    shmb_waiter_wake(&asleep, &bell, &posted);
    return unused;
}

static void nothing(int number) {}

/* A wait takes a ring, and after 64 without news all, behind a nap. */
static void rings_and_signals_end_a_wait(void) {
    pthread_t thread;
    int64_t began = shmb_clock_ns();
    start(SHMB_WAIT_BLOCK, 1, 0);
    CHECK(pthread_create(&thread, NULL, ring, NULL) == 0);
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, INT64_MAX) == RUNG);
    pthread_join(thread, NULL);
    CHECK((int64_t)posted >= began && (int64_t)posted <= shmb_clock_ns());
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = nothing}, NULL);
    ualarm(2000, 2000);
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, INT64_MAX) == SIGNALLED);
    ualarm(0, 0);
    start(SHMB_WAIT_BLOCK, 1, 0); /* a late signal is silence, which begins the count again */
    atomic_store(&bell.count, 71);
    for (uint32_t left = 70; left > 6; left--) {
        CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, INT64_MAX) == RUNG);
        CHECK(atomic_load(&bell.count) == left);
    }
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, INT64_MAX) == RUNG);
    CHECK(atomic_load(&bell.count) == 0);
}

/* Also where its descriptor is 0. */
static void what_it_opened_is_closed(void) {
    start(SHMB_WAIT_BLOCK, 1, 0);
    shmb_waiter_follow(&w);
    CHECK(w.loadavg == -1 && close(0) == 0);
    start(SHMB_WAIT_ADAPTIVE, 1, 0);
    shmb_waiter_follow(&w);
    CHECK(w.loadavg == 0);
    shmb_waiter_free(&w);
    CHECK(fcntl(0, F_GETFD) == -1 && w.loadavg == -1);
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    a_wait_begins_as_the_table_says();
    who_waits_in_a_crowd_looks_less_often();
    yields_that_fail_are_not_tried_for_a_while();
    a_wait_is_noted();
    what_a_wake_up_takes_is_learned();
    rings_and_signals_end_a_wait();
    what_it_opened_is_closed();
    return 0;
}
