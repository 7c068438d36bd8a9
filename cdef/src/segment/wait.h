/* Waiting: how long to spin, when to sleep. The ring is the truth and the semaphore a hint. Knows
 * nothing of rings. */
#ifndef SHMB_WAIT_H
#define SHMB_WAIT_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "segment/segment.h"
#include "shmbridge.h"

struct waiter {
    struct place *place;          /* where it tells since when and where it waits, or NULL */
    const struct place *peer;     /* the other side's, or NULL */
    const struct host_line *host; /* tells how crowded it is, or NULL */
    bool near;                    /* was the other side on this CPU when a clock was last read? */
    bool yields;                  /* did it then begin to yield? */
    bool busy;                    /* did others compute on this CPU then? */
    bool hot;                     /* has the host received a request each HOT_NS since `counted`? */
    int64_t counted;              /* shmb_clock_ns, */
    uint32_t received;            /* and how many it had received then */
    bool waits;                   /* for the same since its last wait */
    bool spins_only;              /* never sleeps */
    bool may_spin;                /* not told to block */
    int64_t wake_cost;   /* ns from post to running again on another CPU, measured, averaged */
    int64_t usual;       /* ns that waits take, averaged, long ones cut to what spinning is worth */
    int64_t busy_until;  /* others are taken to compute here until then, shmb_clock_ns */
    int64_t yields_from; /* no yield before, shmb_clock_ns */
    int64_t ban;         /* how many times what the next yields lose there are none */
    int unflagged;       /* sleeps that stay short, since somebody lowered the flag of one */
    int64_t waited;      /* ns, of all waits that came to a clock */
    /* did the last wait come to sleeping, by one who could spin: is there something to learn? */
    bool slept;
};

enum waited { NEWS, SLICE_OVER, RUNG, SIGNALLED };

void shmb_waiter_init(struct waiter *w, shmb_wait policy);
/* From now on w tells *place of its waits; the CPUs that it may use it tells at once. */
void shmb_waiter_tell(struct waiter *w, struct place *place);
/* Waits until look(context) is true, but not past `until` (shmb_clock_ns; at most a slice from
 * now), nor past a bell without news (of a claim, a close: what look does not see) or a signal
 * handler that ran while asleep. asleep is this side's flag, bell its semaphore. */
enum waited shmb_waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                             _Atomic uint32_t *asleep, sem_t *bell, int64_t until);
/* Would a wait begin with spinning now? For who looks on its own; shmb_waiter_news tells that its
 * look found something. */
bool shmb_waiter_spins(const struct waiter *w);
/* How many looks of `most` are worth it before a wait yields or sleeps. A host looks at a channel for
 * each runner: where it yields, the more there are the sooner it lets them have the CPU. */
uint64_t shmb_waiter_looks(const struct waiter *w, uint64_t most);
void shmb_waiter_news(struct waiter *w);
/* The news that ended a sleep was posted at `posted`: learns what a wake-up costs. */
void shmb_waiter_learn(struct waiter *w, uint64_t posted, int64_t woke);
/* The other side's part, after publishing news: rings the bell if it sleeps. *posted is the waker's
 * note of when. */
void shmb_waiter_wake(_Atomic uint32_t *asleep, sem_t *bell, _Atomic uint64_t *posted);

#endif
