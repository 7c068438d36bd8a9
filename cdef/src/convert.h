/* One number into another dtype, exactly or not at all. */
#ifndef SHMB_CONVERT_H
#define SHMB_CONVERT_H

#include <stdbool.h>

#include "shmbridge.h"

/* Writes value as dtype to out (8 bytes of room). False when dtype cannot hold it exactly. NaN stays NaN. */
bool convert_i64(int64_t value, shmb_dtype dtype, void *out);
bool convert_f64(double value, shmb_dtype dtype, void *out);

#endif
