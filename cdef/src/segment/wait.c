#include "segment/wait.h"

#include <errno.h>
#include <sched.h>

#include "base/order.h"

/* docs/design.md has the rule, docs/performance.md what it costs. */
enum {
    LOOKS = 1024,                /* without a clock: a microsecond */
    SPIN_NS = 200 * 1000,        /* a few times what waking a sleeper takes in a virtual machine */
    CROWDED_SPIN_NS = 20 * 1000, /* of a runner, which would give its CPU away by sleeping */
    /* Past the kernel's next tick, 4 ms at 250 Hz: a virtual machine takes 3 us to program an
     * earlier timer. */
    TICK_NS = 5000 * 1000,
    MOST_RINGS = 64 /* without news or silence, before each is followed by sleep for a tick */
};

void shmb_waiter_init(struct waiter *w, shmb_wait policy) {
    *w = (struct waiter){.policy = policy == SHMB_WAIT_DEFAULT ? SHMB_WAIT_ADAPTIVE : policy};
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

static uint32_t runners(const struct waiter *w) {
    return w->host ? load_relaxed(&w->host->runners) : 0;
}

/* For the host and each runner. Several peers are assumed to use the same CPUs as this side. */
static bool cpus_suffice(const struct waiter *w) {
    uint64_t cpus = w->hint ? load_relaxed(&w->hint->cpus) : UINT64_MAX;
    if (w->peer) cpus |= load_relaxed(&w->peer->cpus);
    return runners(w) < (uint32_t)__builtin_popcountll(cpus);
}

/* How long to spin before a sleep. On the other side's CPU that would only keep it from answering.
 * Where CPUs are few, a runner's sleep gives its own to another compiler for milliseconds. */
static int64_t budget(const struct waiter *w, int64_t now) {
    if (w->policy != SHMB_WAIT_ADAPTIVE) return w->policy == SHMB_WAIT_SPIN ? INT64_MAX : 0;
    if (w->peer && (int)load_relaxed(&w->peer->cpu) == sched_getcpu()) return 0;
    if (now < w->crowded_until || !cpus_suffice(w)) return w->peer ? CROWDED_SPIN_NS : 0;
    return w->usual < SPIN_NS ? SPIN_NS : 0;
}

bool shmb_waiter_spins(const struct waiter *w) { return budget(w, shmb_clock_ns()) > 0; }

void shmb_waiter_news(struct waiter *w) {
    w->waits = false;
    w->usual -= w->usual / 8;
}

/* Who loses its CPU here takes CPUs to be few for a slice. */
static bool spin(struct waiter *w, int64_t now, int64_t end, bool (*look)(void *), void *context) {
    while (now < end) {
        if (look(context)) return true;
        cpu_pause();
        int64_t before = now;
        now = shmb_clock_ns();
        if (now - before > SPIN_NS) w->crowded_until = now + SLICE_NS;
    }
    return look(context);
}

/* Any process may post the semaphore without end. One that does not stop is ignored for a while. */
static int sleep_by_bell(struct waiter *w, struct semaphore *bell, int64_t until) {
    int64_t left = until - shmb_clock_ns();
    if (w->rings < MOST_RINGS) {
        int error = shmb_semaphore_wait(bell, left);
        w->rings = error == ETIMEDOUT ? 0 : (uint8_t)(w->rings + !error);
        return error;
    }
    w->rings = MOST_RINGS - 1;
    bool slept = left <= 0 || shmb_sleep(earlier(left, TICK_NS));
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
    store_relaxed(asleep, 1);
    full_fence();
    int error = look(context) ? 0 : sleep_flagged(w, asleep, bell, until);
    enum waited result = RUNG;
    if (look(context)) result = WOKEN;
    else if (error) result = error == EINTR ? SIGNALLED : SLICE_OVER;
    store_relaxed(asleep, 0);
    return result;
}

enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, struct semaphore *bell, int64_t until) {
    /* Without pauses: one takes up to 50 ns, as long as the news. A host looks at a channel for
     * each runner. */
    uint64_t looks = w->policy == SHMB_WAIT_BLOCK ? 0 : LOOKS / (1 + (uint64_t)runners(w));
    for (uint64_t i = 0; i < looks; i++)
        if (look(context)) {
            shmb_waiter_news(w);
            return NEWS;
        }
    int64_t start = shmb_clock_ns();
    tell_since(w, start);
    until = earlier(until, start + SLICE_NS);
    int64_t end = start + earlier(until - start, budget(w, start));
    enum waited result = SLICE_OVER;
    if (spin(w, start, end, look, context)) result = NEWS;
    else if (w->policy != SHMB_WAIT_SPIN && until > start)
        result = sleep_for_news(w, look, context, asleep, bell, until);
    int64_t took = shmb_clock_ns() - start;
    w->waited += took;
    w->usual += (earlier(took, 2 * SPIN_NS) - w->usual) / 8; /* one long pause does not end it */
    if (result <= WOKEN) w->waits = false, w->rings = 0;
    return result;
}

void shmb_waiter_wake(_Atomic uint32_t *asleep, struct semaphore *bell) {
    if (load_relaxed(asleep)) shmb_semaphore_post(bell);
}
