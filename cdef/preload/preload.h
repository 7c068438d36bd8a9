/* What the files of the preloaded library share. */
#ifndef SHMB_PRELOAD_H
#define SHMB_PRELOAD_H

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/order.h"

/* $SHMBRIDGE_LLVM_BASE, which the paths of channels begin with; "" for none. */
const char *preload_prefix(void);

/* The next definition of a function that the library stands before: next_open, ... */
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
