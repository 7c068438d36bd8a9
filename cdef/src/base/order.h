/* Memory ordering, named: no other file spells an atomic load or store. Every store to the segment
 * goes through here too, so that a test build (SHMB_STEPS) can stop before each of them. */
#ifndef SHMB_ORDER_H
#define SHMB_ORDER_H

#include <stdatomic.h>
#include <string.h>

#ifdef SHMB_STEPS
void shmb_step(void); /* tests/kill/steps.c: stops the process before the chosen one */
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
/* For a load that decides about a later plain store: no processor swaps the two, but C11 and the
 * thread sanitizer call it a race without acquire. */
#define load_acquire_formal(p) load_acquire(p)
/* Stores before this come before stores after it, in the eyes of who reads them the other way round
 * with load_fence between: for a version that is odd while what it guards is written. */
#define store_fence() atomic_thread_fence(memory_order_release)
#define load_fence() atomic_thread_fence(memory_order_acquire)
#define store_relaxed(p, v) (shmb_step(), atomic_store_explicit((p), (v), memory_order_relaxed))
#define store_release(p, v) (shmb_step(), atomic_store_explicit((p), (v), memory_order_release))

/* Read and change, as one step: for words that both sides write. swap_acquire: was it `from`, and
 * is it `to` now? */
#define add_release(p, v) (shmb_step(), atomic_fetch_add_explicit((p), (v), memory_order_release))
#define exchange_acquire(p, v)                                                                     \
    (shmb_step(), atomic_exchange_explicit((p), (v), memory_order_acquire))
#define swap_acquire(p, from, to)                                                                  \
    (shmb_step(),                                                                                  \
     atomic_compare_exchange_strong_explicit((p), &(__typeof__(from)){from}, (to),                 \
                                             memory_order_acquire, memory_order_relaxed))

/* A stamp and a sleeper's flag: one side stores the stamp, the other the flag; each executes this
 * fence and loads the other's word. Then at least one of the two sees the other's store, and no
 * wake-up is lost (Dekker). The fence comes behind the store: a sequentially consistent one would
 * wait for the stores before it, while the other side, which looks at their line, takes it away. */
#define full_fence() atomic_thread_fence(memory_order_seq_cst)

#endif
