/* The published exchanges of ML-Compiler-Bridge's test programs through shmbridge's C API. Usage:
 * URL; prints "ok". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shmbridge.h"

static shmb_runner *r;

static double element(const shmb_tensor *t, int64_t i) {
    switch (t->dtype) {
    case SHMB_BOOL: return ((const uint8_t *)t->data)[i];
    case SHMB_INT32: return ((const int32_t *)t->data)[i];
    case SHMB_INT64: return (double)((const int64_t *)t->data)[i];
    case SHMB_FLOAT32: return ((const float *)t->data)[i];
    case SHMB_FLOAT64: return ((const double *)t->data)[i];
    default: return NAN;
    }
}

static void expect(shmb_dtype dtype, int64_t count, const double *expected) {
    shmb_tensor t;
    if (shmb_evaluate_as(r, dtype) || shmb_advice(r, NULL, &t))
        fprintf(stderr, "%s\n", shmb_error_message(r)), exit(3);
    if (t.size != count)
        fprintf(stderr, "expected %d elements, found %d\n", (int)count, (int)t.size), exit(4);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(element(&t, i) - expected[i]) <= 1e-5))
            fprintf(stderr, "expected %.17g, found %.17g\n", expected[i], element(&t, i)), exit(5);
}

#define LIST(...)                                                                                  \
    (const double[]) { __VA_ARGS__ }
#define SET(dtype, rank, ...) shmb_set(r, "x", dtype, rank, (const int64_t[]){3}, __VA_ARGS__)

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    if (shmb_open(argv[1], NULL, &r)) fprintf(stderr, "%s\n", shmb_error_message(r)), exit(2);
    SET(SHMB_INT32, 0, &(int32_t){11});
    expect(SHMB_INT32, 1, LIST(12));
    SET(SHMB_INT64, 0, &(int64_t){1234567890});
    expect(SHMB_INT64, 1, LIST(1234567891));
    SET(SHMB_FLOAT32, 0, &(float){3.14f});
    expect(SHMB_FLOAT32, 1, LIST(4.14));
    SET(SHMB_FLOAT64, 0, &(double){0.123456789123456789});
    expect(SHMB_FLOAT64, 1, LIST(1.123456789123456789));
    SET(SHMB_INT8, 0, "a");
    expect(SHMB_INT32, 1, LIST('b'));
    SET(SHMB_BOOL, 0, &(uint8_t){1});
    expect(SHMB_BOOL, 1, LIST(0));
    SET(SHMB_INT32, 1, (const int32_t[]){11, 22, 33});
    expect(SHMB_INT32, 3, LIST(12, 23, 34));
    SET(SHMB_INT64, 1, (const int64_t[]){123456780, 222, 333});
    expect(SHMB_INT64, 3, LIST(123456780, 123456781, 123456782));
    SET(SHMB_FLOAT32, 1, (const float[]){11.1f, 22.2f, 33.3f});
    expect(SHMB_FLOAT32, 4, LIST(1.11, 2.22, -3.33, 0));
    SET(SHMB_FLOAT64, 1, (const double[]){-1.1, -2.2, -3.3});
    expect(SHMB_FLOAT64, 2, LIST(1.1234567891234567, -1.12345678912345671));
    float *x = shmb_feature_f32(r, "x", 100);
    for (int i = 0; i < 100; i++) x[i] = (float)((i - 20) * (i - 20)) / 10000;
    expect(SHMB_INT32, 1, LIST(20));
    shmb_close(r);
    printf("ok\n");
    return 0;
}
