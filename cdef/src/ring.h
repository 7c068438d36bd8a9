/* Memory ordering, named: no other file spells an atomic. Every store to the segment goes through here too, so that a
 * test build (SHMB_STEPS) can stop before each of them. */
#ifndef SHMB_RING_H
#define SHMB_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "segment.h"

#ifdef SHMB_STEPS
void shmb_step(void); /* steps.c: counts, and stops the process before the chosen store */
#else
#define shmb_step() ((void)0)
#endif

/* Plain bytes, ordered by the stamp or state that is released after them. */
static inline void put(void *to, const void *from, size_t bytes) {
    shmb_step();
    memcpy(to, from, bytes);
}

/* Copies out of the segment; what is read afterwards is the copy, never the segment again. */
static inline void take_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Between two looks of a spinning waiter. */
static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define store_relaxed(p, v) (shmb_step(), atomic_store_explicit((p), (v), memory_order_relaxed))
#define store_release(p, v) (shmb_step(), atomic_store_explicit((p), (v), memory_order_release))

/* A stamp and a sleeper's flag are sequentially consistent: publish(stamp) then raised(flag) on the one side, publish(flag)
 * then raised(stamp) on the other. Then at least one of the two sees the other, and no wake-up is lost (Dekker). */
#define publish(p, v) (shmb_step(), atomic_store_explicit((p), (v), memory_order_seq_cst))
#define raised(p) atomic_load_explicit((p), memory_order_seq_cst)

/* Fills a descriptor and stamps it: after this the other side may read it. */
static inline void ring_push(struct descriptor *ring, uint32_t slots, uint64_t position,
                             const struct descriptor *d) {
    struct descriptor *to = &ring[position & (slots - 1)];
    put(&to->sequence, &d->sequence, sizeof *d - offsetof(struct descriptor, sequence));
    publish(&to->stamp, position + 1);
}

/* Copies all but the stamp. */
static inline void ring_take(const struct descriptor *ring, uint32_t slots, uint64_t position,
                             struct descriptor *d) {
    take_copy(&d->sequence, &ring[position & (slots - 1)].sequence,
              sizeof *d - offsetof(struct descriptor, sequence));
}

static inline bool ring_has(const struct descriptor *ring, uint32_t slots, uint64_t position) {
    return raised(&ring[position & (slots - 1)].stamp) == position + 1;
}

#endif
