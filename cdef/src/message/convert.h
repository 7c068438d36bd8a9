/* One number into another dtype, exactly or not at all. */
#ifndef SHMB_CONVERT_H
#define SHMB_CONVERT_H

#include <stdbool.h>

#include "shmbridge.h"

/* Writes value as dtype to out (8 bytes of room). False when dtype cannot hold it exactly. NaN
 * stays NaN. */
bool shmb_convert_i64(int64_t value, shmb_dtype dtype, void *out);
bool shmb_convert_f64(double value, shmb_dtype dtype, void *out);

/* Writes the elements of a tensor as dtype to out. Returns -1, or the index of the first that dtype
 * cannot hold exactly. */
int64_t shmb_convert_tensor(const shmb_tensor *from, shmb_dtype dtype, void *out);

/* An element as it was read: a whole number that int64 holds, one that only uint64 does, or a
 * float. */
typedef enum shmb_number_form { SHMB_WHOLE, SHMB_ABOVE_INT64, SHMB_REAL } shmb_number_form;
typedef struct shmb_number {
    shmb_number_form form;
    int64_t i;  /* of SHMB_WHOLE */
    uint64_t u; /* of SHMB_ABOVE_INT64 */
    double f;   /* the number, or the double that is nearest to it */
} shmb_number;
shmb_number shmb_number_at(const void *element, shmb_dtype dtype);
/* Writes its digits to text, which it returns. */
const char *shmb_number_text(shmb_number n, char text[32]);

#endif
