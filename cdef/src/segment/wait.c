#include "segment/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/order.h"

/* In parentheses: the row of bench waiting that shows what the value is good for. */
enum {
    WAKE_COST_GUESS = 25 * 1000, /* ns: a virtual machine's (every50) */
    WAKE_COST_MOST = 50 * 1000,  /* a longer one waited for a CPU (loops) */
    SHORTEST_SPIN_NS = 20 * 1000,
    MOST_YIELDS = 100, /* each takes 1 us of this side's own CPU */
    /* A thread that keeps a CPU for longer is not waiting for us (runners8_every50). */
    COMPUTES_NS = 500 * 1000,
    ANSWER_NS = 10 * 1000, /* while two ask and answer without a wake-up (runners8) */
    LONGEST_BACKOFF = 64,  /* times what yielding in vain cost (runners8_every50_loops2) */
    FEW_PER_CPU = 3,       /* runners; fewer may spin (bench compilation, four compilers) */
    /* Past the kernel's next tick, 4 ms at 250 Hz. A timer before that has to be programmed, which
     * takes a virtual machine 3 us: half of a round trip of sleepers (together). */
    TICK_NS = 5000 * 1000,
    AT_ONCE = 300,   /* questions without a long wait; a compiler has fewer (loops8) */
    MOST_RINGS = 64, /* without news or silence, before each is followed by a nap */
    NAP_NS = 1000 * 1000,
    LOOKS_BEFORE_CLOCK = 1024, /* as long as a yield takes (runners8, bench scale) */
    LOOKS_PER_CLOCK = 32
};

/* ---- Where both sides are ---- */

void shmb_waiter_init(struct waiter *w, shmb_wait policy) {
    *w = (struct waiter){.policy = policy == SHMB_WAIT_DEFAULT ? SHMB_WAIT_ADAPTIVE : policy,
                         .statistics = {.wake_cost = WAKE_COST_GUESS, .backoff = 1},
                         .loadavg = -1};
}

void shmb_waiter_tell(struct waiter *w, struct wait_hint *hint) {
    uint64_t cpus[CPU_SETSIZE / 64], folded = 0;
    if (sched_getaffinity(0, sizeof cpus, (cpu_set_t *)cpus) == 0)
        for (int i = 0; i < CPU_SETSIZE / 64; i++) folded |= cpus[i];
    store_relaxed(&hint->cpus, folded);
    w->hint = hint;
}

static void tell_since(struct waiter *w, int64_t start) {
    if (w->waits || !w->hint) return;
    w->waits = true;
    store_relaxed(&w->hint->since, (uint64_t)start);
    store_relaxed(&w->hint->cpu, (uint32_t)sched_getcpu());
}

static bool same_cpu(const struct waiter *w) {
    return w->peer && (int)load_relaxed(&w->peer->cpu) == sched_getcpu();
}

/* How many CPUs both sides together may use. Several peers are assumed to use the same as this
 * side. */
static uint32_t cpus(const struct waiter *w) {
    uint64_t mask = w->hint ? load_relaxed(&w->hint->cpus) : UINT64_MAX;
    if (w->peer) mask |= load_relaxed(&w->peer->cpus);
    return mask ? (uint32_t)__builtin_popcountll(mask) : 1;
}

static uint32_t runners(const struct waiter *w) {
    return w->host ? load_relaxed(&w->host->runners) : 0;
}

static uint32_t requests(const struct waiter *w) {
    return w->host ? load_relaxed(&w->host->received) : 0;
}

/* A CPU for each side; both on this CPU; a runner for each CPU; more runners than CPUs. */
enum place { APART, TOGETHER, ONE_EACH, CROWDED };

static enum place place_of(const struct waiter *w) {
    uint32_t count = cpus(w);
    if (count == 1 || same_cpu(w)) return TOGETHER;
    if (runners(w) < count) return APART;
    return runners(w) == count ? ONE_EACH : CROWDED;
}

/* ---- How a wait begins ---- */

/* The table of docs/design.md. A side that spins where the other one needs the CPU keeps it from
 * answering. A woken thread gets the CPU at once. */
static const struct {
    enum wait_mode yields, host, runner; /* while it may yield; else the host, the runner */
} modes[] = {
    [APART] = {SPINS, SPINS, SPINS},
    [TOGETHER] = {YIELDS, SLEEPS, SLEEPS},
    [ONE_EACH] = {YIELDS, SLEEPS, SPINS_SHORTLY},
    [CROWDED] = {YIELDS, SLEEPS, SPINS_SHORTLY},
};

/* How long to spin before a sleep. Both sides spend the time of a wake-up on it. Spinning for as
 * long wastes at most the same again (ski rental). */
static int64_t budget(const struct waiter *w, enum wait_mode mode) {
    int64_t worth = 4 * w->statistics.wake_cost;
    if (mode == SLEEPS) return 0;
    if (mode == SPINS_ONLY) return INT64_MAX;
    return mode == SPINS_SHORTLY || worth < SHORTEST_SPIN_NS ? SHORTEST_SPIN_NS : worth;
}

/* If waits usually outlast the spinning, all of it would be wasted. If the host receives something
 * every 10 us, it answers without wake-ups, and would lose that to wake a runner. Otherwise the
 * runners compute. If there is one for each CPU, a host that yields gives one of them the CPU for
 * milliseconds (bench compilation, two compilers). */
static enum wait_mode choose(const struct waiter *w, int64_t now) {
    if (w->policy != SHMB_WAIT_ADAPTIVE) return w->policy == SHMB_WAIT_SPIN ? SPINS_ONLY : SLEEPS;
    enum place place = place_of(w);
    enum wait_mode mode = w->peer ? modes[place].runner : modes[place].host;
    if (place == CROWDED && w->peer && runners(w) < FEW_PER_CPU * cpus(w)) mode = SPINS;
    if (now >= w->statistics.yields_from) mode = modes[place].yields;
    if (mode == SPINS_SHORTLY || place == ONE_EACH) return w->hot ? mode : SLEEPS;
    bool wasted = mode == SPINS && w->statistics.usual >= budget(w, SPINS);
    return wasted ? SLEEPS : mode;
}

uint64_t shmb_waiter_looks(const struct waiter *w, uint64_t most) {
    return w->peer || runners(w) < cpus(w) ? most : most / (1 + (uint64_t)runners(w));
}

bool shmb_waiter_spins(const struct waiter *w) {
    enum wait_mode mode = choose(w, w->statistics.counted); /* the last wait's time: no clock */
    return mode != SLEEPS && mode != YIELDS;
}

/* ---- To spin ---- */

void shmb_waiter_news(struct waiter *w) {
    w->waits = false;
    w->statistics.usual -= w->statistics.usual / 8;
}

static void note_wait(struct waiter *w, int64_t waited) {
    int64_t most = 2 * budget(w, SPINS); /* one long pause must not end the spinning */
    if (waited > SHORTEST_SPIN_NS) w->statistics.paused = w->statistics.received;
    w->statistics.usual += ((waited < most ? waited : most) - w->statistics.usual) / 8;
}

static bool spin(int64_t end, bool (*look)(void *), void *context) {
    while (shmb_clock_ns() < end)
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (look(context)) return true;
            cpu_pause();
        }
    return look(context);
}

/* Notes how often the host received something since the last wait. */
static void count(struct waiter *w, int64_t now) {
    uint32_t received = requests(w);
    struct wait_statistics *seen = &w->statistics;
    w->hot = now - seen->counted < (received - seen->received) * (int64_t)ANSWER_NS;
    seen->counted = now;
    seen->received = received;
}

/* ---- To yield ---- */

/* No yields for a while; for eight times as long if they fail again. */
static void give_up_yields(struct wait_statistics *s, int64_t now, int64_t lost) {
    s->yields_from = now + s->backoff * lost;
    s->backoff = earlier(8 * s->backoff, LONGEST_BACKOFF);
}

/* A waiting thread gives the CPU back within microseconds, a computing one after milliseconds.
 * These are lost, unless the host was answering meanwhile. */
static bool yield(struct waiter *w, int64_t start, int64_t until, bool (*look)(void *),
                  void *context) {
    int64_t now = start;
    for (int i = 0; i < MOST_YIELDS && now < until; i++) {
        uint32_t before = requests(w);
        sched_yield();
        int64_t took = shmb_clock_ns() - now;
        now += took;
        uint32_t answered = requests(w) - before;
        if (took > COMPUTES_NS && took > answered * (int64_t)ANSWER_NS) {
            give_up_yields(&w->statistics, now, took);
            return look(context);
        }
        if (look(context)) {
            if (w->statistics.backoff > 1) w->statistics.backoff /= 2;
            return true;
        }
    }
    if (now < until) give_up_yields(&w->statistics, now, now - start);
    return false;
}

/* ---- To be woken where the peer runs ---- */

void shmb_waiter_follow(struct waiter *w) {
    if (w->policy == SHMB_WAIT_ADAPTIVE) w->loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
}

void shmb_waiter_free(struct waiter *w) {
    if (w->loadavg >= 0) close(w->loadavg);
    w->loadavg = -1;
}

/* All running threads, including this one, have a CPU. The file's fourth word is RUNNING/ALL. */
static bool cpus_suffice(const struct waiter *w, const cpu_set_t *own) {
    char text[64] = "";
    int running;
    return pread(w->loadavg, text, sizeof text - 1, 0) > 0 &&
           sscanf(text, "%*s %*s %*s %d", &running) == 1 && running <= CPU_COUNT(own);
}

/* Unless another program, such as taskset, has chosen CPUs meanwhile. */
static void unpin(const cpu_set_t *own, const cpu_set_t *near) {
    cpu_set_t now;
    if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, near))
        sched_setaffinity(0, sizeof *own, own);
}

static bool go(const cpu_set_t *to, const cpu_set_t *own, bool stays) {
    if (sched_setaffinity(0, sizeof *to, to) != 0) return false;
    if (!stays) unpin(own, to);
    return stays;
}

/* Where a host that follows is probably asked next. With more runners than CPUs it would wait there
 * behind another one (bench compilation, four compilers). */
static const struct wait_hint *next_asker(const struct waiter *w) {
    if (w->loadavg < 0) return NULL;
    return w->peer ? w->peer : place_of(w) == ONE_EACH ? w->asker : NULL;
}

/* Waking a sleeper costs 5 us on the waker's CPU, but 25 to 70 us on another one in a virtual
 * machine. So a host goes to where it is asked next. The kernel would wake it on an idle CPU, so
 * while there is one it stays until unpin, unless both sides can spin. If its only runner asks at
 * once all the time, it goes to another CPU, even to a busy one. True: it stays. */
static bool go_near(const struct waiter *w, cpu_set_t *own, cpu_set_t *to) {
    const struct wait_statistics *s = &w->statistics;
    const struct wait_hint *asker = next_asker(w);
    uint32_t cpu = asker ? load_relaxed(&asker->cpu) : CPU_SETSIZE;
    bool here = (int)cpu == sched_getcpu(), spins = s->usual < budget(w, SPINS);
    if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof *own, own) != 0 || !CPU_ISSET(cpu, own))
        return false;
    CPU_ZERO(to);
    CPU_SET(cpu, to);
    if (!w->peer) return !here && go(to, own, false);
    if (here && s->received - s->paused > AT_ONCE) {
        CPU_XOR(to, to, own);
        return CPU_COUNT(to) && go(to, own, false);
    }
    if (s->usual < SHORTEST_SPIN_NS || (here && spins)) return false;
    bool idle = cpus_suffice(w, own);
    return (idle ? !spins : !here) && go(to, own, idle);
}

/* ---- To sleep ---- */

/* Any process may post the semaphore without end. One that does not stop is ignored for a while. */
static int sleep_by_bell(struct waiter *w, struct semaphore *bell, int64_t until) {
    int64_t left = until - shmb_clock_ns();
    if (w->rings < MOST_RINGS) {
        int error = shmb_semaphore_wait(bell, left);
        w->rings = error == ETIMEDOUT ? 0 : (uint8_t)(w->rings + !error);
        return error;
    }
    w->rings = MOST_RINGS - 1;
    bool slept = left <= 0 || shmb_sleep(earlier(left, NAP_NS));
    shmb_semaphore_clear(bell);
    return slept ? 0 : errno;
}

/* Any process may clear the flag, and then nobody posts. A sleep checks it at the next tick, and
 * again each time after twice as long. */
static int sleep_flagged(struct waiter *w, _Atomic uint32_t *asleep, struct semaphore *bell,
                         int64_t until) {
    int64_t start = shmb_clock_ns();
    for (int64_t length = TICK_NS;; length *= 2) {
        bool last = until - start <= length;
        int error = sleep_by_bell(w, bell, last ? until : start + length);
        if (error != ETIMEDOUT || last || !load_relaxed(asleep)) return error;
    }
}

static enum waited sleep_for_news(struct waiter *w, bool (*look)(void *), void *context,
                                  _Atomic uint32_t *asleep, struct semaphore *bell, int64_t until) {
    cpu_set_t own, near;
    bool pinned = go_near(w, &own, &near);
    store_relaxed(asleep, 1);
    full_fence();
    int error = look(context) ? 0 : sleep_flagged(w, asleep, bell, until);
    if (pinned) unpin(&own, &near);
    enum waited result = RUNG;
    if (look(context)) result = NEWS;
    else if (error) result = error == EINTR ? SIGNALLED : SLICE_OVER;
    store_relaxed(asleep, 0);
    return result;
}

enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, struct semaphore *bell, int64_t until) {
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
    until = earlier(until, start + SLICE_NS);
    count(w, start);
    w->mode = choose(w, start);
    int64_t end = start + earlier(until - start, budget(w, w->mode));
    bool news =
        w->mode == YIELDS ? yield(w, start, until, look, context) : spin(end, look, context);
    bool sleeps = !news && w->mode != SPINS_ONLY && until > start;
    enum waited result = news ? NEWS : SLICE_OVER;
    if (sleeps) result = sleep_for_news(w, look, context, asleep, bell, until);
    int64_t took = shmb_clock_ns() - start;
    w->statistics.waited += took;
    if (result == NEWS) w->waits = false, w->rings = 0;
    if (sleeps) { /* a wake-up is not the peer's time */
        int64_t wake_up = earlier(took, w->statistics.wake_cost);
        took -= wake_up;
        w->statistics.counted += wake_up;
    }
    if (w->policy == SHMB_WAIT_ADAPTIVE && w->mode != YIELDS) note_wait(w, took);
    return sleeps && result == NEWS ? WOKEN : result;
}

void shmb_waiter_learn(struct waiter *w, uint64_t posted, int64_t woke) {
    uint64_t cost = (uint64_t)woke - posted;
    /* a lie, another clock, or a busy machine */
    if (cost < 1000 || cost > WAKE_COST_MOST || same_cpu(w)) return;
    w->statistics.wake_cost += ((int64_t)cost - w->statistics.wake_cost) / 8;
}

void shmb_waiter_wake(_Atomic uint32_t *asleep, struct semaphore *bell, _Atomic uint64_t *posted) {
    if (!load_relaxed(asleep)) return;
    store_relaxed(posted, (uint64_t)shmb_clock_ns());
    shmb_semaphore_post(bell);
}
