/* A counting semaphore in the segment: a word, over the kernel's futex. Both sides write to it, and
 * so may a liar. So a wait is only a hint that something may have happened, and always ends. */
#ifndef SHMB_SEMAPHORE_H
#define SHMB_SEMAPHORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct semaphore {
    _Atomic uint32_t count;
};

/* Adds 1 and wakes a sleeper. Signal-safe. */
void shmb_semaphore_post(struct semaphore *s);
/* Subtracts 1; false if the count is 0, or another changes it just now. */
bool shmb_semaphore_try_wait(struct semaphore *s);
/* The same, but sleeps for up to ns where there is nothing to take. 0: it took a post, or was woken
 * without one; ETIMEDOUT; EINTR: a signal handler ran. */
int shmb_semaphore_wait(struct semaphore *s, int64_t ns);
void shmb_semaphore_clear(struct semaphore *s);

#endif
