/* A ring of descriptors, each of which carries its own news. */
#ifndef SHMB_RING_H
#define SHMB_RING_H

#include <stdbool.h>

#include "base/order.h"
#include "segment/segment.h"

/* Fills a descriptor and stamps it: after this the other side may read it. That side looks at the
 * stamp meanwhile, which takes the cache line from us, so only what it needs is filled. */
static inline void ring_push(struct descriptor *ring, uint32_t slots, uint64_t position,
                             const struct descriptor *d) {
    struct descriptor *to = &ring[position & (slots - 1)];
    put(&to->sequence, &d->sequence,
        offsetof(struct descriptor, data) - offsetof(struct descriptor, sequence));
    if (d->flags & (NEW | INLINE)) put(to->data, d->data, sizeof d->data);
    store_release(&to->stamp, position + 1);
    full_fence(); /* then shmb_waiter_wake looks at the flag */
}

/* Copies all but the stamp. */
static inline void ring_take(const struct descriptor *ring, uint32_t slots, uint64_t position,
                             struct descriptor *d) {
    take_copy(&d->sequence, &ring[position & (slots - 1)].sequence,
              sizeof *d - offsetof(struct descriptor, sequence));
}

static inline bool ring_has(const struct descriptor *ring, uint32_t slots, uint64_t position) {
    return load_acquire(&ring[position & (slots - 1)].stamp) == position + 1;
}

#endif
