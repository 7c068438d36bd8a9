/* Waiting: how long to spin, when to sleep. What `look` sees counts; the semaphore is a hint. */
#ifndef SHMB_WAIT_H
#define SHMB_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "segment/segment.h"
#include "shmbridge.h"

/* Times in ns. */
struct waiter {
    shmb_wait policy;             /* never SHMB_WAIT_DEFAULT */
    struct wait_hint *hint;       /* this side's CPUs, and since when it waits; or NULL */
    const struct wait_hint *peer; /* the other side's, or NULL */
    const struct host_line *host; /* says how many runners it has, or NULL */
    bool waits;                   /* for the same since its last wait */
    uint8_t rings;                /* of the bell, since the last news or silence */
    int64_t usual;                /* length of a wait, averaged, with long ones cut (wait.c) */
    int64_t waited;               /* in all waits that lasted until the clock was read */
    int64_t crowded_until;        /* until then CPUs count as few, because a spin lost its own */
};

/* WOKEN: the news ended a sleep. */
enum waited { NEWS, WOKEN, SLICE_OVER, RUNG, SIGNALLED };

void shmb_waiter_init(struct waiter *w, shmb_wait policy);
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
void shmb_waiter_news(struct waiter *w);
/* The other side's part, after publishing news: rings the bell if it sleeps. */
void shmb_waiter_wake(_Atomic uint32_t *asleep, struct semaphore *bell);

#endif
