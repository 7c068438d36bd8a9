/* One number into another dtype, exactly or not at all. */
#ifndef SHMB_CONVERT_H
#define SHMB_CONVERT_H

#include <stdbool.h>

#include "shmbridge.h"

/* Writes value as dtype to out (8 bytes of room). False when dtype cannot hold it exactly. NaN stays NaN. */
bool convert_i64(int64_t value, shmb_dtype dtype, void *out);
bool convert_f64(double value, shmb_dtype dtype, void *out);

/* Writes the elements of a tensor as dtype to out. Returns -1, or the index of the first that dtype cannot hold exactly. */
int64_t convert_tensor(const shmb_tensor *from, shmb_dtype dtype, void *out);
/* What a float16's, a bfloat16's bits mean. */
float half_value(uint16_t half);
float bfloat_value(uint16_t bfloat);

#endif
