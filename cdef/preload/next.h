/* The next definition of each function that the preloaded library stands before: next_open, ... */
#ifndef SHMB_NEXT_H
#define SHMB_NEXT_H

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/order.h"

#define NEXT(name)                                                                                 \
    static inline __typeof__(name) *next_##name(void) {                                            \
        static _Atomic(void *) found;                                                              \
        union {                                                                                    \
            void *symbol;                                                                          \
            __typeof__(name) *function;                                                            \
        } next = {load_relaxed(&found)};                                                           \
        if (!next.symbol) {                                                                        \
            next.symbol = dlsym(RTLD_NEXT, #name);                                                 \
            store_relaxed(&found, next.symbol);                                                    \
        }                                                                                          \
        return next.function;                                                                      \
    }
NEXT(open)
NEXT(read)
NEXT(write)
NEXT(close)
#ifdef __GLIBC__
NEXT(open64)
#endif

#endif
