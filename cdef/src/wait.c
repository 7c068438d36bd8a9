#include "wait.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ring.h"

enum {
    WAKE_COST_GUESS = 50 * 1000, /* ns: a virtual machine's */
    SHORTEST_SPIN_NS = 20 * 1000,
    POLITE_NS = 1000 *
        1000, /* compilers often ask every 50 to 500 microseconds, and a wake-up each time is a tenth of that */
    OTHERS_RAN_NS = 10 * 1000, /* a yield that takes so long was not for nothing */
    CROWDED_WAITS = 64,
    RETRY_NS = 2 * 1000 * 1000,
    LOOKS_BEFORE_CLOCK = 512,
    LOOKS_PER_CLOCK = 32
};

int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_after(double seconds) {
    return clock_ns() + (seconds > 0 ? (int64_t)(seconds < 1e9 ? seconds * 1e9 : 1e18) : 0);
}

void pause_before_retry(int64_t until) {
    int64_t left = until - clock_ns(), ns = left < RETRY_NS ? left : RETRY_NS;
    if (ns > 0) nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* CPUs' worth of time that a cgroup's quota allows: version 2, or version 1. Unlimited when there is none. */
static double cgroup_cpus(void) {
    double quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%lf %lf", &quota, &period) != 2) quota = -1;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
        if (fscanf(f, "%lf", &quota) != 1) quota = -1;
        fclose(f);
        period = 100000;
    }
    return quota > 0 && period > 0 ? quota / period : 1e9;
}

void waiter_init(struct waiter *w, shmb_wait policy) {
    cpu_set_t cpus;
    int usable = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 2;
    bool alone = usable < 2 || cgroup_cpus() < 2;
    *w = (struct waiter){.spins_only = policy == SHMB_WAIT_SPIN,
                         .may_spin = policy != SHMB_WAIT_BLOCK && !alone,
                         .wake_cost = WAKE_COST_GUESS};
}

/* Spinning for what a wake-up costs wastes at most as much again (ski rental). A wake-up is cheapest where both sides share
 * a CPU; a spin of some length all the same makes the scheduler part them, and then a round trip takes a fraction. */
static int64_t worth_spinning(const struct waiter *w) {
    return 2 * w->wake_cost > SHORTEST_SPIN_NS ? 2 * w->wake_cost : SHORTEST_SPIN_NS;
}

/* When waits usually outlast that, spinning wastes all of it, so do not begin. */
static int64_t spin_budget(const struct waiter *w) {
    int64_t worth = worth_spinning(w);
    return w->may_spin && w->usual < worth ? worth : 0;
}

bool waiter_spins(const struct waiter *w) { return w->spins_only || spin_budget(w) > 0; }

void waiter_news(struct waiter *w) {
    w->usual -= w->usual / 8;
    w->typical -= w->typical / 8;
}

static void note_wait(struct waiter *w, int64_t waited) {
    int64_t most = 2 * worth_spinning(w),
            longest = 2 * POLITE_NS; /* one long pause must not end the spinning */
    w->usual += ((waited < most ? waited : most) - w->usual) / 8;
    w->typical += ((waited < longest ? waited : longest) - w->typical) / 8;
}

static bool spin(int64_t start, int64_t budget, bool yields, bool (*look)(void *), void *context) {
    for (int64_t now = start; now - start < budget; now = clock_ns()) {
        bool give_way = yields && now - start > budget / 2;
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (look(context)) return true;
            if (give_way) {
                sched_yield();
                break;
            }
            cpu_pause();
        }
    }
    return look(context);
}

static bool may_linger(struct waiter *w) {
    if (w->crowded) w->crowded--;
    return w->may_spin && !w->crowded && w->typical < POLITE_NS;
}

/* Spins on where sleeping would be cheaper for this process, as long as nobody else wants the CPU, since the other side then
 * goes without a wake-up. A yield that comes back at once says that nobody does. */
static bool linger(struct waiter *w, int64_t until, bool (*look)(void *), void *context) {
    for (int64_t before = clock_ns(), now; before < until; before = now) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (look(context)) return true;
            cpu_pause();
        }
        int64_t yielded = clock_ns();
        sched_yield();
        now = clock_ns();
        if (now - yielded < OTHERS_RAN_NS) continue;
        w->crowded = CROWDED_WAITS;
        break;
    }
    return look(context);
}

static int sleep_until(sem_t *bell, int64_t until) {
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return sem_clockwait(bell, CLOCK_MONOTONIC, &t) == 0 ? 0 : errno;
}

static enum waited sleep_for_news(bool (*look)(void *), void *context, _Atomic uint32_t *asleep,
                                  sem_t *bell, int64_t until) {
    publish(asleep, 1);
    int error = look(context) ? 0 : sleep_until(bell, until);
    enum waited result = look(context)    ? NEWS
                         : error == EINTR ? SIGNALLED
                         : error          ? SLICE_OVER
                                          : RUNG;
    store_relaxed(asleep, 0);
    return result;
}

enum waited waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                        _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    w->slept = false;
    /* Without pauses at first: one takes up to 50 ns, as long as the news. */
    for (int i = 0; w->may_spin && i < LOOKS_BEFORE_CLOCK; i++) {
        if (look(context)) {
            waiter_news(w);
            return NEWS;
        }
    }
    int64_t start = clock_ns();
    if (until > start + SLICE_NS) until = start + SLICE_NS;
    int64_t budget = w->spins_only ? until - start : spin_budget(w);
    if (budget > until - start) budget = until - start;
    int64_t lingers = start + POLITE_NS < until ? start + POLITE_NS : until;
    enum waited result = NEWS;
    if (!spin(start, budget, !w->spins_only, look, context) &&
        (w->spins_only || !may_linger(w) || !linger(w, lingers, look, context))) {
        bool sleeps = !w->spins_only && until > start;
        w->slept = sleeps && w->may_spin;
        result = sleeps ? sleep_for_news(look, context, asleep, bell, until) : SLICE_OVER;
    }
    if (w->may_spin && !w->spins_only) note_wait(w, clock_ns() - start);
    return result;
}

void waiter_learn(struct waiter *w, int64_t posted, int64_t woke) {
    int64_t cost = woke - posted;
    if (cost < 1000 || cost > 1000 * 1000)
        return; /* another clock, or a machine too busy to tell */
    w->wake_cost += (cost - w->wake_cost) / 8;
}

void waiter_wake(_Atomic uint32_t *asleep, sem_t *bell, _Atomic uint64_t *posted) {
    if (!raised(asleep)) return;
    store_relaxed(posted, (uint64_t)clock_ns());
    sem_post(bell);
}
