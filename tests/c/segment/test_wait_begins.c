/* How a wait begins, by the rule of docs/design.md, and what it learns for the next one. No check
 * depends on the speed of this machine. */
#include <sched.h>

#include "base/clock.h"
#include "bridge.h"

enum { SPINS = 200 * 1000, LOOKS = 1024 }; /* ns; without a clock, shared by host and runners */
enum sides { RUNNER = 1, SAME_CPU = 2, CROWDED = 4 };

static struct waiter w;
static struct wait_hint mine, peer;
static struct host_line host;
static _Atomic uint32_t asleep;
static struct semaphore bell;
static int looks;

static bool never(void *context) { return looks++, false; }
static bool once_asleep(void *context) { return atomic_load(&asleep); }

static bool in_a_spin(void *context) { return ++looks > LOOKS / 2; }

/* The first look of a spin takes 2 ms. */
static bool slow(void *context) {
    if (looks++ == LOOKS / 2) usleep(2000);
    return atomic_load(&asleep);
}

/* A side that may use two CPUs, as the other one may. */
static void start(shmb_wait policy, uint32_t runners, enum sides sides) {
    shmb_waiter_init(&w, policy);
    w.hint = &mine;
    w.host = &host;
    w.peer = sides & RUNNER ? &peer : NULL;
    w.crowded_until = sides & CROWDED ? INT64_MAX : 0;
    atomic_store(&mine.cpus, 3);
    atomic_store(&peer.cpus, 2);
    atomic_store(&peer.cpu, sides & SAME_CPU ? (uint32_t)sched_getcpu() : UINT32_MAX);
    atomic_store(&host.runners, runners);
    looks = 0;
}

static void a_wait_begins_by_the_rule(void) {
    static const struct {
        shmb_wait policy;
        uint32_t runners;
        enum sides sides;
        bool spins, spins_where_waits_are_long;
    } rows[] = {
        {SHMB_WAIT_DEFAULT, 1, 0, true, false},
        {SHMB_WAIT_ADAPTIVE, 1, RUNNER, true, false},
        {SHMB_WAIT_ADAPTIVE, 1, RUNNER | SAME_CPU, false, false},
        {SHMB_WAIT_ADAPTIVE, 1, RUNNER | CROWDED, true, true},
        {SHMB_WAIT_ADAPTIVE, 2, 0, false, false},
        {SHMB_WAIT_ADAPTIVE, 2, RUNNER, true, true},
        {SHMB_WAIT_ADAPTIVE, UINT32_MAX, RUNNER | SAME_CPU, false, false},
        {SHMB_WAIT_BLOCK, 1, RUNNER, false, false},
        {SHMB_WAIT_SPIN, 9, RUNNER | SAME_CPU | CROWDED, true, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(rows[i].policy, rows[i].runners, rows[i].sides);
        w.usual = SPINS - 1;
        CHECK(shmb_waiter_spins(&w) == rows[i].spins);
        w.usual = SPINS;
        CHECK(shmb_waiter_spins(&w) == rows[i].spins_where_waits_are_long);
    }
    start(SHMB_WAIT_ADAPTIVE, 1, RUNNER); /* both on one and the same CPU */
    atomic_store(&mine.cpus, 2);
    w.peer = NULL;
    CHECK(!shmb_waiter_spins(&w));
}

/* Each look of a host with runners is at more channels. One that spins, or sleeps, looks again. */
static void runners_share_the_looks(void) {
    static const struct {
        shmb_wait policy;
        uint32_t runners;
        int looks;
    } rows[] = {{SHMB_WAIT_ADAPTIVE, 1, 512},
                {SHMB_WAIT_SPIN, 7, 128},
                {SHMB_WAIT_ADAPTIVE, UINT32_MAX, 0},
                {SHMB_WAIT_BLOCK, 1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(rows[i].policy, rows[i].runners, 0);
        CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, 0) == SLICE_OVER);
        CHECK(looks == rows[i].looks + 1);
    }
}

/* A host that loses its CPU sleeps, and begins with that for a slice. */
static void a_lost_cpu_ends_spinning_for_a_while(void) {
    start(SHMB_WAIT_ADAPTIVE, 1, 0);
    int64_t before = shmb_clock_ns();
    CHECK(shmb_waiter_wait(&w, slow, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
    CHECK(w.crowded_until > before + SLICE_NS && w.crowded_until <= shmb_clock_ns() + SLICE_NS);
    looks = 0;
    w.usual = 0;
    CHECK(shmb_waiter_wait(&w, once_asleep, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
    w.crowded_until = 0;
    CHECK(shmb_waiter_wait(&w, in_a_spin, NULL, &asleep, &bell, INT64_MAX) == NEWS);
}

/* A wait that a slice did not end tells when the first one began. */
static void a_wait_is_noted(void) {
    start(SHMB_WAIT_BLOCK, 1, 0);
    int64_t until = shmb_clock_ns() + 4000 * 1000;
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, until) == SLICE_OVER);
    int64_t now = shmb_clock_ns(), since = (int64_t)atomic_load(&mine.since);
    CHECK(since >= until - 4000 * 1000 && (int)atomic_load(&mine.cpu) == sched_getcpu());
    CHECK(w.waits && w.waited >= until - since && w.waited <= now - since);
    CHECK(w.usual == 2 * SPINS / 8); /* of which more is not worth knowing */
    w.usual = 2 * SPINS;
    shmb_waiter_wait(&w, never, NULL, &asleep, &bell, shmb_clock_ns() + 3000 * 1000);
    CHECK(w.usual == 2 * SPINS && (int64_t)atomic_load(&mine.since) == since);
    CHECK(shmb_waiter_wait(&w, once_asleep, NULL, &asleep, &bell, INT64_MAX) == WOKEN);
    CHECK(!w.waits && !atomic_load(&asleep));
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, 0) == SLICE_OVER);
    CHECK((int64_t)atomic_load(&mine.since) > since && w.waits);
    w.usual = 800;
    shmb_waiter_news(&w);
    CHECK(w.usual == 700 && !w.waits);
    start(SHMB_WAIT_SPIN, 1, 0);
    until = shmb_clock_ns() + 1000 * 1000;
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, until) == SLICE_OVER);
    CHECK(shmb_clock_ns() >= until);
}

static void *ring(void *unused) {
    while (!atomic_load(&asleep)) usleep(100);
    shmb_waiter_wake(&asleep, &bell);
    return unused;
}

static void nothing(int number) {}

/* A wait takes a ring, and after 64 without news all, behind a nap. */
static void rings_and_signals_end_a_wait(void) {
    start(SHMB_WAIT_BLOCK, 1, 0);
    pthread_t thread = thread_start(ring, NULL);
    CHECK(shmb_waiter_wait(&w, never, NULL, &asleep, &bell, INT64_MAX) == RUNG);
    pthread_join(thread, NULL);
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

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    a_wait_begins_by_the_rule();
    runners_share_the_looks();
    a_lost_cpu_ends_spinning_for_a_while();
    a_wait_is_noted();
    rings_and_signals_end_a_wait();
}
