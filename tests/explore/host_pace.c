/* host.c, and the counts that only set its pace: zeroed, equal situations meet. */
#include "host/host.c"

void explore_forget_pace(shmb_host *h) {
    store_relaxed(&h->received, 0);
    h->looks = 0;
    h->waiter.rings = 0;
}
