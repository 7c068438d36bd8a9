/* Counts the stores to the segment and stops the process before a chosen one. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/order.h"

static _Atomic long count;

/* The step and the signal come from the environment, so that any program can be the victim. */
void shmb_step(void) {
    static _Atomic long target = -1;
    static int number = SIGKILL;
    long step = atomic_fetch_add(&count, 1) + 1;
    if (target == -1) {
        const char *at = getenv("SHMB_STEP"), *with = getenv("SHMB_STEP_SIGNAL");
        if (with) number = atoi(with);
        target = at ? atol(at) : 0;
    }
    if (step == target) kill(getpid(), number);
}

long shmb_steps(void) { return count; }
