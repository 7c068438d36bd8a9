#include "segment/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/order.h"

/* bench/waiting.py has the rows that each of these is for. */
enum {
    WAKE_COST_GUESS = 25 * 1000, /* ns: a virtual machine's (every50) */
    WAKE_COST_MOST = 50 * 1000,  /* more says that others had the CPU (loops) */
    SHORTEST_SPIN_NS = 20 * 1000,
    YIELD_COST = 1000, /* ns of this side's own CPU */
    /* Who keeps a CPU for longer does not wait for us (runners8_every50). */
    COMPUTES_NS = 500 * 1000,
    HOT_NS = 10 * 1000,    /* a question's, while two ask and answer without a wake-up (runners8) */
    MANY_PER_CPU = 3,      /* runners, that do not spin (bench/steps.py --loops 2) */
    LONGEST_BACKOFF = 64,  /* times what yielding in vain cost (runners8_every50_loops2) */
    BUSY_FOR = 64,         /* times what an interruption took (every50_loops2) */
    HINT_NS = 1000 * 1000, /* what any word that others may write costs a wait, but for the first */
    /* Past the kernel's next tick, 4 ms at 250 Hz. A timer before that has to be programmed, which
     * takes a virtual machine 3 us: half of a round trip of sleepers (together). */
    TICK_NS = 5000 * 1000,
    MOST_RINGS = 64, /* without news, before a sleep */
    SLEEPS_UNWOKEN = 1000,
    LOOKS_BEFORE_CLOCK = 1024, /* as long as a yield takes (runners8, bench/scale.py --batches) */
    LOOKS_PER_CLOCK = 32
};

/* ---- Where ---- */

void shmb_waiter_init(struct waiter *w, shmb_wait policy) {
    *w = (struct waiter){.policy = policy == SHMB_WAIT_DEFAULT ? SHMB_WAIT_ADAPTIVE : policy,
                         .statistics = {.wake_cost = WAKE_COST_GUESS, .backoff = 1},
                         .loadavg = -1};
}

void shmb_waiter_tell(struct waiter *w, struct wait_hint *hint) {
    cpu_set_t cpus;
    uint64_t folded = 0;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        for (int i = 0; i < CPU_SETSIZE; i++) folded |= (uint64_t)!!CPU_ISSET(i, &cpus) << i % 64;
    store_relaxed(&hint->cpus, folded);
    w->hint = hint;
}

static void tell_since(struct waiter *w, int64_t start) {
    if (w->waits || !w->hint) return;
    w->waits = true;
    store_relaxed(&w->hint->since, (uint64_t)start);
    store_relaxed(&w->hint->cpu, (uint32_t)sched_getcpu());
}

/* ---- To spin, to yield or to sleep ---- */

static bool same_cpu(const struct waiter *w) {
    return w->peer && (int)load_relaxed(&w->peer->cpu) == sched_getcpu();
}

/* That both sides together may run on. Of several peers none is asked: they are taken to be where
 * this side is. */
static uint32_t cpus(const struct waiter *w) {
    uint64_t mask = w->hint ? load_relaxed(&w->hint->cpus) : UINT64_MAX;
    if (w->peer) mask |= load_relaxed(&w->peer->cpus);
    return mask ? (uint32_t)__builtin_popcountll(mask) : 1;
}

static uint32_t runners(const struct waiter *w) {
    return w->host ? load_relaxed(&w->host->runners) : 0;
}

/* Rounded down: from 1 on there are more sides than CPUs. */
static uint32_t runners_per_cpu(const struct waiter *w) { return runners(w) / cpus(w); }

/* Who spins there may keep the other side from answering. */
static bool crowded(const struct waiter *w) { return same_cpu(w) || runners_per_cpu(w) > 0; }

/* What a mode spends before it sleeps. A wake-up costs the CPU of both sides as much as it takes.
 * Spinning for so long wastes at most as much again (ski rental). */
static int64_t budget(const struct waiter *w, enum wait_mode mode) {
    int64_t worth = 4 * w->statistics.wake_cost;
    if (mode == SLEEPS) return 0;
    if (mode == SPINS_ONLY) return INT64_MAX;
    return mode == SPINS_SHORTLY || worth < SHORTEST_SPIN_NS ? SHORTEST_SPIN_NS : worth;
}

/* When waits usually outlast its budget, spinning wastes all of it, so do not begin. In a crowd
 * where nobody may yield, the host gets the CPU by a wake-up. Runners spin while they are few, or
 * shortly while the host answers others without a wake-up: it would lose that to wake them. */
static enum wait_mode spin_or_sleep(const struct waiter *w) {
    if (w->policy == SHMB_WAIT_SPIN) return SPINS_ONLY;
    if (w->policy == SHMB_WAIT_BLOCK || cpus(w) == 1 || same_cpu(w)) return SLEEPS;
    if (runners_per_cpu(w) >= (w->peer ? MANY_PER_CPU : 1))
        return w->peer && w->hot ? SPINS_SHORTLY : SLEEPS;
    enum wait_mode spins = w->busy ? SPINS_SHORTLY : SPINS;
    return w->statistics.usual < budget(w, spins) ? spins : SLEEPS;
}

static enum wait_mode choose(const struct waiter *w, int64_t now) {
    bool may_yield = w->policy == SHMB_WAIT_ADAPTIVE && now >= w->statistics.yields_from;
    return may_yield && crowded(w) ? YIELDS : spin_or_sleep(w);
}

uint64_t shmb_waiter_looks(const struct waiter *w, uint64_t most) {
    return w->peer || !runners_per_cpu(w) ? most : most / (1 + (uint64_t)runners(w));
}

bool shmb_waiter_spins(const struct waiter *w) { return spin_or_sleep(w) != SLEEPS; }

void shmb_waiter_news(struct waiter *w) {
    w->waits = false;
    w->statistics.usual -= w->statistics.usual / 8;
}

static void note_wait(struct waiter *w, int64_t waited) {
    int64_t most = 2 * budget(w, SPINS); /* one long pause must not end the spinning */
    w->statistics.usual += ((waited < most ? waited : most) - w->statistics.usual) / 8;
}

static bool look_for(int64_t start, int64_t length, bool (*look)(void *), void *context) {
    while (shmb_clock_ns() - start < length)
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (look(context)) return true;
            cpu_pause();
        }
    return look(context);
}

/* Who is kept from looking shares the CPU with somebody who computes. Long spins use up a side's
 * share, and then it is kept from answering. */
static bool spin(struct waiter *w, int64_t start, int64_t until, bool (*look)(void *),
                 void *context) {
    int64_t most = budget(w, w->mode), length = most < until - start ? most : until - start;
    bool news = look_for(start, length, look, context);
    int64_t now = shmb_clock_ns(), kept = now - start - length;
    if (kept > COMPUTES_NS) w->statistics.busy_until = now + BUSY_FOR * kept;
    return news;
}

/* Of what the host has received, as it tells. */
static void count(struct waiter *w, int64_t now) {
    uint32_t received = w->host ? load_relaxed(&w->host->received) : 0;
    struct wait_statistics *seen = &w->statistics;
    w->hot = now - seen->counted < (received - seen->received) * (int64_t)HOT_NS;
    seen->counted = now;
    seen->received = received;
}

/* Does without for a while; for eight times as long when that happens again. */
static void give_up_yields(struct wait_statistics *s, int64_t now, int64_t lost) {
    s->yields_from = now + s->backoff * lost;
    s->backoff = 8 * s->backoff < LONGEST_BACKOFF ? 8 * s->backoff : LONGEST_BACKOFF;
}

/* Others who wait give the CPU back after microseconds, one who computes after milliseconds. These
 * are lost, unless the host answered somebody all the while. */
static bool yield(struct waiter *w, int64_t start, int64_t until, bool (*look)(void *),
                  void *context) {
    int64_t now = start, most = budget(w, YIELDS);
    for (int64_t spent = 0; spent < most && now < until; spent += YIELD_COST) {
        uint32_t before = w->host ? load_relaxed(&w->host->received) : 0;
        sched_yield();
        int64_t took = shmb_clock_ns() - now;
        now += took;
        uint32_t answered = w->host ? load_relaxed(&w->host->received) - before : 0;
        if (took > COMPUTES_NS && took > answered * (int64_t)HOT_NS) {
            give_up_yields(&w->statistics, now, took);
            return look(context);
        }
        if (look(context)) {
            if (w->statistics.backoff > 1) w->statistics.backoff /= 2;
            return true;
        }
    }
    give_up_yields(&w->statistics, now, now - start);
    return false;
}

/* ---- To be woken where the peer runs ---- */

void shmb_waiter_follow(struct waiter *w) {
    w->loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
}

void shmb_waiter_free(struct waiter *w) {
    if (w->loadavg >= 0) close(w->loadavg);
    w->loadavg = -1;
}

/* No more threads run, this one among them, than there are CPUs for it. The file's fourth word is
 * RUNNING/ALL. */
static bool cpus_suffice(const struct waiter *w, const cpu_set_t *own) {
    char text[64] = "", *at = text;
    if (pread(w->loadavg, text, sizeof text - 1, 0) <= 0) return false;
    for (int i = 0; i < 3 && at; i++) at = strchr(at + 1, ' ');
    return at && strtol(at, NULL, 10) <= CPU_COUNT(own);
}

/* Waking a sleeper costs 5 us on the waker's CPU, but 25 to 70 us on another one that idles in a
 * virtual machine. As the waker then waits, its CPU is free, unless other threads want it. Returns
 * the CPU, or -1. */
static int pin(const struct waiter *w, cpu_set_t *before) {
    bool spins = w->statistics.usual < budget(w, SPINS);
    if (w->loadavg < 0 || !w->peer || spins || w->policy != SHMB_WAIT_ADAPTIVE) return -1;
    cpu_set_t one;
    uint32_t cpu = load_relaxed(&w->peer->cpu);
    if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof *before, before) ||
        !CPU_ISSET(cpu, before) || !cpus_suffice(w, before))
        return -1;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0 ? (int)cpu : -1;
}

/* Unless another program, such as taskset, has chosen CPUs meanwhile. */
static void unpin(int cpu, const cpu_set_t *before) {
    cpu_set_t now;
    if (cpu >= 0 && sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 &&
        CPU_ISSET(cpu, &now))
        sched_setaffinity(0, sizeof *before, before);
}

/* ---- To sleep ---- */

/* musl and glibc before 2.30 lack it. There a clock that is set back prolongs a sleep: with glibc all
 * the while, with musl only as it begins, since the kernel gets the time that is left. A program
 * that was built with an old glibc still uses it when it runs with a newer one. */
#if 1000 * __GLIBC__ + __GLIBC_MINOR__ >= 2030
#define HAS_CLOCKWAIT true
#else
__attribute__((weak)) int sem_clockwait(sem_t *bell, clockid_t clock, const struct timespec *until);
#define HAS_CLOCKWAIT (sem_clockwait != NULL)
#endif

static int sleep_until(sem_t *bell, int64_t until) {
    struct timespec t = timespec_of(until), now;
    if (HAS_CLOCKWAIT) return sem_clockwait(bell, CLOCK_MONOTONIC, &t) == 0 ? 0 : errno;
    clock_gettime(CLOCK_REALTIME, &now);
    t = timespec_of(now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec + until - shmb_clock_ns());
    return sem_timedwait(bell, &t) == 0 ? 0 : errno;
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
 * again when it has taken twice as long; where that has happened no sleep is longer than HINT_NS
 * for a while. */
static int sleep_flagged(struct wait_statistics *s, _Atomic uint32_t *asleep, sem_t *bell,
                         int64_t until) {
    int64_t start = shmb_clock_ns(), soon = start, most = s->sleeps_unwoken ? HINT_NS : SLICE_NS;
    int64_t least = s->sleeps_unwoken ? HINT_NS : TICK_NS;
    int error;
    do {
        int64_t length = soon - start > least ? soon - start : least;
        soon += length < most ? length : most;
        error = sleep_by_bell(bell, soon < until ? soon : until);
    } while (error == ETIMEDOUT && soon < until && most > HINT_NS && load_relaxed(asleep));
    if (!load_relaxed(asleep)) s->sleeps_unwoken = SLEEPS_UNWOKEN;
    else if (s->sleeps_unwoken) s->sleeps_unwoken--;
    return error;
}

static enum waited sleep_for_news(struct waiter *w, bool (*look)(void *), void *context,
                                  _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    cpu_set_t before;
    int cpu = pin(w, &before);
    publish(asleep, 1);
    int error = look(context) ? 0 : sleep_flagged(&w->statistics, asleep, bell, until);
    unpin(cpu, &before);
    enum waited result = RUNG;
    if (look(context)) result = NEWS;
    else if (error) result = error == EINTR ? SIGNALLED : SLICE_OVER;
    store_relaxed(asleep, 0);
    return result;
}

enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, sem_t *bell, int64_t until) {
    /* Without pauses at first: one takes up to 50 ns, as long as the news. */
    uint64_t looks = w->near ? 1 : shmb_waiter_looks(w, LOOKS_BEFORE_CLOCK);
    for (uint64_t i = 0; w->policy != SHMB_WAIT_BLOCK && i < looks; i++)
        if (look(context)) {
            shmb_waiter_news(w);
            return NEWS;
        }
    w->near = same_cpu(w);
    int64_t start = shmb_clock_ns();
    tell_since(w, start);
    count(w, start);
    if (until > start + SLICE_NS) until = start + SLICE_NS;
    w->busy = start < w->statistics.busy_until;
    w->mode = choose(w, start);
    bool news = w->mode == YIELDS ? yield(w, start, until, look, context)
                                  : spin(w, start, until, look, context);
    bool sleeps = !news && w->mode != SPINS_ONLY && until > start;
    enum waited result = news ? NEWS : SLICE_OVER;
    if (sleeps) result = sleep_for_news(w, look, context, asleep, bell, until);
    int64_t took = shmb_clock_ns() - start;
    w->statistics.waited += took;
    if (result == NEWS) w->waits = false;
    if (w->policy == SHMB_WAIT_BLOCK) return result;
    if (sleeps) took -= took < w->statistics.wake_cost ? took : w->statistics.wake_cost;
    if (w->mode < SPINS_ONLY) note_wait(w, took); /* up to the news, not to waking up */
    return sleeps && result == NEWS ? WOKEN : result;
}

void shmb_waiter_learn(struct waiter *w, uint64_t posted, int64_t woke) {
    uint64_t cost = (uint64_t)woke - posted;
    /* a lie, another clock, or a machine too busy to tell */
    if (cost < 1000 || cost > WAKE_COST_MOST || same_cpu(w)) return;
    w->statistics.wake_cost += ((int64_t)cost - w->statistics.wake_cost) / 8;
}

void shmb_waiter_wake(_Atomic uint32_t *asleep, sem_t *bell, _Atomic uint64_t *posted) {
    if (!raised(asleep)) return;
    store_relaxed(posted, (uint64_t)shmb_clock_ns());
    sem_post(bell);
}
