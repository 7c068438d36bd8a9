/* What the core knows about each dtype, once; shmbridge.h gives them their numbers. */
#ifndef SHMB_DTYPE_H
#define SHMB_DTYPE_H

#include <stdbool.h>

#include "shmbridge.h"

/* X(NAME, name, C type of an element, how its bits are read and written (convert.c), LLVM's name or
 * NULL) */
#define SHMB_DTYPES(X)                                                                             \
    X(BOOL, bool, uint8_t, boolean, NULL)                                                          \
    X(INT8, int8, int8_t, whole, "int8_t")                                                         \
    X(INT16, int16, int16_t, whole, "int16_t")                                                     \
    X(INT32, int32, int32_t, whole, "int32_t")                                                     \
    X(INT64, int64, int64_t, whole, "int64_t")                                                     \
    X(UINT8, uint8, uint8_t, natural, "uint8_t")                                                   \
    X(UINT16, uint16, uint16_t, natural, "uint16_t")                                               \
    X(UINT32, uint32, uint32_t, natural, "uint32_t")                                               \
    X(UINT64, uint64, uint64_t, natural, "uint64_t")                                               \
    X(FLOAT16, float16, uint16_t, half, NULL)                                                      \
    X(FLOAT32, float32, float, real, "float")                                                      \
    X(FLOAT64, float64, double, real, "double")                                                    \
    X(BFLOAT16, bfloat16, uint16_t, bfloat, NULL)

#define SHMB_ONE_DTYPE(...) +1
enum { DTYPES = 1 SHMB_DTYPES(SHMB_ONE_DTYPE), LAST_DTYPE = DTYPES - 1 }; /* with SHMB_ANY */

/* By shmb_dtype; SHMB_ANY has size 0. */
struct dtype {
    _Alignas(32) size_t size; /* aligned: each message looks it up, and an index is then a shift */
    const char *name, *llvm;
};
extern const struct dtype shmb_dtypes[DTYPES];

/* May a request want its advice so? */
static inline bool want_exists(uint32_t want) { return want < DTYPES; }

#endif
