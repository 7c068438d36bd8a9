/* ML-Compiler-Bridge's in-process test: a model gets x[i] = ((i - 20) / 100)^2 and answers 2 - x.
 * Prints where that is greatest: 20.
 *     argmax URL */
#include <stdio.h>

#include "shmbridge.h"

int main(int argc, char **argv) {
    shmb_runner *r;
    shmb_tensor advice;
    if (argc != 2) return 2;
    shmb_open(argv[1], NULL, &r);
    float *x = shmb_feature_f32(r, "x", 100);
    for (int i = 0; i < 100; i++) x[i] = (float)((i - 20) / 100.0 * ((i - 20) / 100.0));
    if (shmb_evaluate_as(r, SHMB_FLOAT32) || shmb_advice(r, NULL, &advice) || advice.size != 100) {
        fprintf(stderr, "%s\n", shmb_error_message(r));
        return 1;
    }
    const float *y = advice.data;
    int64_t best = 0;
    for (int64_t i = 1; i < advice.size; i++)
        if (y[i] > y[best]) best = i;
    printf("%d\n", (int)best);
    shmb_close(r);
    return 0;
}
