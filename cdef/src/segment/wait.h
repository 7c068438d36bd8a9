/* Waiting: how long to spin, when to sleep. What `look` sees counts; the semaphore is a hint. */
#ifndef SHMB_WAIT_H
#define SHMB_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "segment/segment.h"
#include "shmbridge.h"

/* How a wait begins. It then sleeps, but for SPINS_ONLY. */
enum wait_mode { SLEEPS, SPINS_SHORTLY, SPINS, SPINS_ONLY, YIELDS };

/* Times in ns. */
struct wait_statistics {
    int64_t wake_cost;   /* from post to running again on another CPU, averaged */
    int64_t usual;       /* of a wait, averaged, long ones cut to what spinning is worth */
    int64_t waited;      /* of all waits that came to a clock */
    int64_t counted;     /* when `received` was read */
    uint32_t received;   /* the host's count of requests then */
    uint32_t paused;     /* `received` at the last long wait */
    int64_t yields_from; /* no yield before */
    int64_t backoff;     /* no yields for so many times what the next ones lose */
};

struct waiter {
    shmb_wait policy;              /* never SHMB_WAIT_DEFAULT */
    struct wait_hint *hint;        /* since when and where it waits, for the peer; or NULL */
    const struct wait_hint *peer;  /* the other side's, or NULL */
    const struct wait_hint *asker; /* of the runner whose request a host took last, or NULL */
    const struct host_line *host;  /* shows how crowded it is, or NULL */
    bool waits;                    /* for the same since its last wait */
    uint8_t rings;                 /* of the bell, since the last news or silence */
    int loadavg;                   /* /proc/loadavg, of one that follows; or -1 */
    /* As a wait last saw it that came to a clock: */
    enum wait_mode mode;
    bool near; /* was the other side on this CPU? */
    bool hot;  /* had the host received a request each ANSWER_NS since the time before? */
    struct wait_statistics statistics;
};

/* WOKEN: by the news, from a sleep. */
enum waited { NEWS, WOKEN, SLICE_OVER, RUNG, SIGNALLED };

void shmb_waiter_init(struct waiter *w, shmb_wait policy);
/* From now on an adaptive w sleeps where its peer last waited; with a runner for each CPU, where
 * `asker` did. */
void shmb_waiter_follow(struct waiter *w);
void shmb_waiter_free(struct waiter *w);
/* Publishes the CPUs that w may use in *hint, and from now on its waits. */
void shmb_waiter_tell(struct waiter *w, struct wait_hint *hint);
/* Waits until look(context) is true, but not past `until` (shmb_clock_ns; at most a slice from
 * now), nor past a bell without news (of a claim, a close: what look does not see) or a signal
 * handler that ran while asleep. asleep is this side's flag, bell its semaphore. */
enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, struct semaphore *bell, int64_t until);
/* Would a wait begin with spinning now? For callers with a loop of looks, which call
 * shmb_waiter_news when a look finds something. */
bool shmb_waiter_spins(const struct waiter *w);
/* How many looks of `most` are worth it before a wait yields or sleeps. A host looks at a channel
 * for each runner: in a crowd, the more there are the sooner it lets them have the CPU. */
uint64_t shmb_waiter_looks(const struct waiter *w, uint64_t most);
void shmb_waiter_news(struct waiter *w);
/* The news that ended a sleep was posted at `posted`: learns what a wake-up costs. */
void shmb_waiter_learn(struct waiter *w, uint64_t posted, int64_t woke);
/* The other side's part, after publishing news: rings the bell if it sleeps. *posted is the waker's
 * note of when. */
void shmb_waiter_wake(_Atomic uint32_t *asleep, struct semaphore *bell, _Atomic uint64_t *posted);

#endif
