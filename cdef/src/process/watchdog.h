/* Ends what computes past its deadline in this process: one thread for all, started when the first
 * deadline is watched. */
#ifndef SHMB_WATCHDOG_H
#define SHMB_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct watched {
    int64_t until; /* shmb_clock_ns */
    /* called once, when it is later than that, in the watchdog's thread */
    void (*stop)(void *context);
    void *context;
    struct watched *next, **link;
};

/* False when there is no thread to be had. */
bool shmb_watchdog_begin(struct watched *w);
/* When this returns stop is not being called, and will not be. */
void shmb_watchdog_end(struct watched *w);

#endif
