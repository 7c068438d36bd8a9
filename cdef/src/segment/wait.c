#include "segment/wait.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/order.h"

/* bench/waiting.py has the rows that each of these is for. */
enum {
    WAKE_COST_GUESS = 25 * 1000, /* ns: a virtual machine's (every50) */
    WAKE_COST_MOST = 50 * 1000,  /* more says that others had the CPU (loops) */
    SHORTEST_SPIN_NS = 20 * 1000,
    HINT_NS = 1000 * 1000, /* what any word that others may write costs a wait, but for the first */
    /* Past the kernel's next tick, 4 ms at 250 Hz. A timer before that has to be programmed, which
     * takes a virtual machine 3 us: half of a round trip of sleepers (together). */
    TICK_NS = 5000 * 1000,
    LONGEST_TOGETHER = 8 * TICK_NS, /* at most a ninth of the time for trying to part (loops1) */
    MOST_RINGS = 64,                /* without news, before a sleep */
    UNFLAGGED_SLEEPS = 1000,
    LOOKS_BEFORE_CLOCK = 512,
    LOOKS_PER_CLOCK = 32
};

/* ---- Where ---- */

void shmb_waiter_init(struct waiter *w, shmb_wait policy) {
    *w = (struct waiter){.spins_only = policy == SHMB_WAIT_SPIN,
                         .may_spin = policy != SHMB_WAIT_BLOCK,
                         .wake_cost = WAKE_COST_GUESS,
                         .part_after = TICK_NS};
}

void shmb_waiter_tell(struct waiter *w, struct place *place) {
    cpu_set_t cpus;
    uint64_t folded = 0;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        for (int i = 0; i < CPU_SETSIZE; i++) folded |= (uint64_t)!!CPU_ISSET(i, &cpus) << i % 64;
    store_relaxed(&place->cpus, folded);
    w->place = place;
}

static void tell_since(struct waiter *w, int64_t start) {
    if (w->waits || !w->place) return;
    w->waits = true;
    store_relaxed(&w->place->since, (uint64_t)start);
    store_relaxed(&w->place->cpu, (uint32_t)sched_getcpu());
}

/* ---- To spin or to sleep ---- */

static bool same_cpu(const struct waiter *w) {
    return w->peer && (int)load_relaxed(&w->peer->cpu) == sched_getcpu();
}

/* Both sides together have one CPU: who spins keeps the other from answering. Of several peers none
 * is asked: they are taken to be where this side is. */
static bool share_one(const struct waiter *w) {
    uint64_t all = w->place ? load_relaxed(&w->place->cpus) : 0;
    if (w->peer) all |= load_relaxed(&w->peer->cpus);
    return w->place && (all & (all - 1)) == 0;
}

/* A wake-up costs the CPU of both sides as much as it takes. Spinning for so long wastes at most as
 * much again (ski rental). */
static int64_t worth_spinning(const struct waiter *w) {
    return 4 * w->wake_cost > SHORTEST_SPIN_NS ? 4 * w->wake_cost : SHORTEST_SPIN_NS;
}

/* When waits usually outlast that, spinning wastes all of it, so do not begin. Nor when the other
 * side needs this CPU to answer: there a wake-up is cheap. */
static int64_t spin_budget(const struct waiter *w) {
    int64_t worth = worth_spinning(w);
    return w->may_spin && w->usual < worth && !share_one(w) && !same_cpu(w) ? worth : 0;
}

/* Two who hand each other one CPU stay there, since never both want to run; apart they need no
 * wake-ups. So when they have waited there for as long as it takes, the runner spins until the
 * kernel's next tick, which sees two that want to run, and may part them. The next attempt comes
 * after twice as long. */
static int64_t parting_budget(struct waiter *w) {
    if (w->together < w->part_after || share_one(w) || !same_cpu(w)) return 0;
    w->together = 0;
    if (w->part_after < LONGEST_TOGETHER) w->part_after *= 2;
    return TICK_NS;
}

bool shmb_waiter_spins(const struct waiter *w) { return w->spins_only || spin_budget(w) > 0; }

void shmb_waiter_news(struct waiter *w) {
    w->waits = false;
    w->usual -= w->usual / 8;
}

static void note_wait(struct waiter *w, int64_t waited) {
    int64_t most = 2 * worth_spinning(w); /* one long pause must not end the spinning */
    if (waited > most) waited = most;
    w->usual += (waited - w->usual) / 8;
    if (!same_cpu(w)) w->part_after = TICK_NS;
    else if (w->leads && w->usual < worth_spinning(w)) w->together += waited;
}

static bool spin(int64_t start, int64_t budget, bool (*look)(void *), void *context) {
    while (shmb_clock_ns() - start < budget)
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (look(context)) return true;
            cpu_pause();
        }
    return look(context);
}

/* ---- To sleep ---- */

static int sleep_until(sem_t *bell, int64_t until) {
    struct timespec t = timespec_of(until);
    return sem_clockwait(bell, CLOCK_MONOTONIC, &t) == 0 ? 0 : errno;
}

static int nap(int64_t until) {
    int64_t left = until - shmb_clock_ns(), ns = left < HINT_NS ? left : HINT_NS;
    return ns > 0 && !shmb_sleep(ns) ? errno : 0;
}

/* Anyone may ring the bell as often as a semaphore counts: one that does not fall silent is not
 * listened to for a while. */
static int sleep_by_bell(sem_t *bell, int64_t until) {
    int rings = 0;
    while (rings < MOST_RINGS && sem_trywait(bell) == 0) rings++;
    if (rings == MOST_RINGS) return nap(until);
    return rings ? 0 : sleep_until(bell, until);
}

/* Anyone may lower the flag, and then nobody rings: a sleep looks after it at the next tick, and
 * again when it has taken twice as long; where that has happened no sleep is longer than HINT_NS for
 * a while. */
static int sleep_flagged(struct waiter *w, _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    int64_t start = shmb_clock_ns(), soon = start, most = w->unflagged ? HINT_NS : SLICE_NS;
    int64_t least = w->unflagged ? HINT_NS : TICK_NS;
    int error;
    do {
        int64_t length = soon - start > least ? soon - start : least;
        soon += length < most ? length : most;
        error = sleep_by_bell(bell, soon < until ? soon : until);
    } while (error == ETIMEDOUT && soon < until && most > HINT_NS && load_relaxed(asleep));
    if (!load_relaxed(asleep)) w->unflagged = UNFLAGGED_SLEEPS;
    else if (w->unflagged) w->unflagged--;
    return error;
}

static enum waited sleep_for_news(struct waiter *w, bool (*look)(void *), void *context,
                                  _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    publish(asleep, 1);
    int error = look(context) ? 0 : sleep_flagged(w, asleep, bell, until);
    enum waited result = RUNG;
    if (look(context)) result = NEWS;
    else if (error) result = error == EINTR ? SIGNALLED : SLICE_OVER;
    store_relaxed(asleep, 0);
    return result;
}

enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    w->slept = false;
    /* Without pauses at first: one takes up to 50 ns, as long as the news. */
    for (int i = w->near ? LOOKS_BEFORE_CLOCK - 1 : 0; w->may_spin && i < LOOKS_BEFORE_CLOCK; i++)
        if (look(context)) {
            shmb_waiter_news(w);
            return NEWS;
        }
    w->near = same_cpu(w);
    int64_t start = shmb_clock_ns();
    tell_since(w, start);
    if (until > start + SLICE_NS) until = start + SLICE_NS;
    int64_t budget = w->spins_only ? until - start : spin_budget(w);
    if (!budget) budget = parting_budget(w);
    if (budget > until - start) budget = until - start;
    enum waited result = NEWS;
    if (!spin(start, budget, look, context)) {
        bool sleeps = !w->spins_only && until > start;
        w->slept = sleeps && w->may_spin;
        result = sleeps ? sleep_for_news(w, look, context, asleep, bell, until) : SLICE_OVER;
    }
    int64_t took = shmb_clock_ns() - start;
    w->waited += took;
    if (result == NEWS) w->waits = false;
    if (w->slept) took -= took < w->wake_cost ? took : w->wake_cost; /* until the news came */
    if (w->may_spin && !w->spins_only) note_wait(w, took);
    return result;
}

void shmb_waiter_learn(struct waiter *w, uint64_t posted, int64_t woke) {
    uint64_t cost = (uint64_t)woke - posted;
    /* a lie, another clock, or a machine too busy to tell */
    if (cost < 1000 || cost > WAKE_COST_MOST || same_cpu(w)) return;
    w->wake_cost += ((int64_t)cost - w->wake_cost) / 8;
}

void shmb_waiter_wake(_Atomic uint32_t *asleep, sem_t *bell, _Atomic uint64_t *posted) {
    if (!raised(asleep)) return;
    store_relaxed(posted, (uint64_t)shmb_clock_ns());
    sem_post(bell);
}
