/* Stands before cdef/src/base/order.h when the core is built for the explorer: every access to the
 * segment is a step of it. Each use is a site, whose order the explorer can weaken. */
#ifndef SHMB_ORDER_H
#define SHMB_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum order { RELAXED, ACQUIRE, RELEASE, ACQUIRE_RELEASE, FULL };

struct site {
    const char *file, *text;
    int line;
    enum order order;
    bool reached;
};
/* The linker gathers them in an array. */
#define SITE(text, order)                                                                          \
    ({                                                                                             \
        static struct site here                                                                    \
            __attribute__((section("sites"), used)) = {__FILE__, text, __LINE__, order, 0};        \
        &here;                                                                                     \
    })

bool explore_has(const volatile void *p); /* in the segment? */
uint64_t explore_load(const volatile void *p, size_t bytes, struct site *site);
void explore_store(volatile void *p, uint64_t value, size_t bytes, struct site *site);
enum change { ADD, SET, SWAP };
/* Returns the old value; of SWAP, whether that was `from`. */
uint64_t explore_change(volatile void *p, enum change how, uint64_t from, uint64_t to, size_t bytes,
                        struct site *site);
void explore_fence(struct site *site);
void put(void *to, const void *from, size_t bytes);
void take_copy(void *to, const void *from, size_t bytes);

#define cpu_pause() ((void)0)
#define shmb_step() ((void)0)

#define LOAD(p, order, text)                                                                       \
    (explore_has(p) ? (__typeof__((void)0, *(p)))explore_load(p, sizeof *(p), SITE(text, order))   \
                    : atomic_load_explicit(p, memory_order_relaxed))
#define STORE(p, v, order, text)                                                                   \
    (explore_has(p) ? explore_store(p, (uint64_t)(v), sizeof *(p), SITE(text, order))              \
                    : atomic_store_explicit(p, v, memory_order_relaxed))
#define load_relaxed(p) LOAD(p, RELAXED, "load_relaxed(" #p ")")
#define load_acquire(p) LOAD(p, ACQUIRE, "load_acquire(" #p ")")
#define load_acquire_formal(p) load_relaxed(p) /* which is enough */
#define store_relaxed(p, v) STORE(p, v, RELAXED, "store_relaxed(" #p ")")
#define store_release(p, v) STORE(p, v, RELEASE, "store_release(" #p ")")
#define add_release(p, v)                                                                          \
    explore_change(p, ADD, 0, v, sizeof *(p), SITE("add_release(" #p ")", RELEASE))
#define exchange_acquire(p, v)                                                                     \
    explore_change(p, SET, 0, v, sizeof *(p), SITE("exchange_acquire(" #p ")", ACQUIRE))
#define swap_acquire(p, from, to)                                                                  \
    explore_change(p, SWAP, from, to, sizeof *(p), SITE("swap_acquire(" #p ")", ACQUIRE))
#define full_fence() explore_fence(SITE("full_fence()", FULL))
#define store_fence() explore_fence(SITE("store_fence()", RELEASE))
#define load_fence() explore_fence(SITE("load_fence()", ACQUIRE))

#endif
