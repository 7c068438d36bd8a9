/* Waiting: how long to spin, when to sleep. The ring is the truth and the semaphore a hint. Knows nothing of rings. */
#ifndef SHMB_WAIT_H
#define SHMB_WAIT_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shmbridge.h"

enum { SLICE_NS = 100 * 1000 * 1000 }; /* a waiter asks after its peer at least this often */

struct waiter {
    bool spins_only;   /* never sleeps */
    bool may_spin;     /* more than one CPU to run on, and not told to block */
    int64_t wake_cost; /* ns from post to running again, measured, averaged */
    int64_t usual;     /* ns that waits take, averaged, long ones cut to what spinning is worth */
    int64_t typical;   /* the same, cut to what polite spinning is */
    int crowded; /* waits that still go without polite spinning, since somebody else wanted the CPU */
    bool
        slept; /* did the last wait come to sleeping, by one who could spin: is there something to learn? */
};

enum waited { NEWS, SLICE_OVER, RUNG, SIGNALLED };

int64_t clock_ns(void);
/* The time that many seconds from now; now for 0 or less. */
int64_t clock_after(double seconds);
/* Sleeps before the next attempt to connect, not past `until`. */
void pause_before_retry(int64_t until);
void waiter_init(struct waiter *w, shmb_wait policy);

/* Waits until look(context) is true, but not past `until` (clock_ns; at most a slice from now), nor past a bell without
 * news (of a claim, a close: what look does not see) or a signal handler that ran while asleep. asleep is this side's flag, bell its semaphore. */
enum waited waiter_wait(struct waiter *w, bool (*look)(void *), void *context,
                        _Atomic uint32_t *asleep, sem_t *bell, int64_t until);
/* Would a wait begin with spinning now? For who looks on its own; waiter_news tells that its look found something. */
bool waiter_spins(const struct waiter *w);
void waiter_news(struct waiter *w);
/* The news that ended a sleep was posted at `posted`: learns what a wake-up costs. */
void waiter_learn(struct waiter *w, int64_t posted, int64_t woke);
/* The other side's part, after publishing news: rings the bell if it sleeps. *posted is the waker's note of when. */
void waiter_wake(_Atomic uint32_t *asleep, sem_t *bell, _Atomic uint64_t *posted);

#endif
