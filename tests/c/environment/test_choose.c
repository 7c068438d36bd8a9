/* Actions out of advice: argmax and samples of every dtype, the same numbers for the same seed, and
 * what is no distribution. */
#include <math.h>

#include "bridge.h"
#include "shmbridge/environment.h"

static shmb_tensor vector(shmb_dtype dtype, int64_t n, const void *data, int64_t *dims) {
    *dims = n;
    return (shmb_tensor){
        .name = "x", .dtype = dtype, .rank = 1, .size = n, .dims = dims, .data = data};
}

static int64_t chosen(shmb_dtype dtype, int64_t n, const void *data, shmb_choice how,
                      uint64_t *random) {
    int64_t dims, action = -7;
    shmb_tensor t = vector(dtype, n, data, &dims);
    CHECK(shmb_choose(&t, how, random, &action, NULL) == SHMB_OK);
    return action;
}

static void refused(shmb_dtype dtype, int64_t n, const void *data, shmb_choice how,
                    shmb_status status) {
    int64_t dims, action = -7;
    uint64_t random = 0;
    const char *why = NULL;
    shmb_tensor t = vector(dtype, n, data, &dims);
    CHECK(shmb_choose(&t, how, &random, &action, &why) == status && why && action == -7);
}

int main(void) {
    static const int64_t ones[9] = {0, 1}; /* byte 8 is one */
    static const uint16_t halves[3] = {0x3c00, 0x4000, 0x3c00},
                          bfloats[3] = {0x3f80, 0x4000, 0x3f80};
    for (shmb_dtype d = SHMB_BOOL; d <= SHMB_UINT64; d++)
        CHECK(chosen(d, 9, ones, SHMB_ARGMAX, NULL) == 8 / (int64_t)shmb_dtype_size(d));
    CHECK(chosen(SHMB_FLOAT16, 3, halves, SHMB_ARGMAX, NULL) == 1 &&
          chosen(SHMB_BFLOAT16, 3, bfloats, SHMB_ARGMAX, NULL) == 1);
    CHECK(chosen(SHMB_FLOAT32, 4, (float[]){-INFINITY, 2, 2, 1}, SHMB_ARGMAX, NULL) == 1);
    CHECK(chosen(SHMB_INT64, 2, (int64_t[]){INT64_MAX - 1, INT64_MAX}, SHMB_ARGMAX, NULL) == 1);

    uint64_t random = 42, same = 42, zero = 0;
    const double logits[] = {0.5, -1, 2, 0, 1};
    for (int i = 0; i < 100; i++)
        CHECK(chosen(SHMB_FLOAT64, 5, logits, SHMB_SAMPLE_LOGITS, &random) ==
              chosen(SHMB_FLOAT64, 5, logits, SHMB_SAMPLE_LOGITS, &same));
    /* SplitMix64's first of seed 0 */
    CHECK(shmb_random(&zero) * 0x1p53 == (double)(0xe220a8397b1dcdaf >> 11));
    int64_t seen[3] = {0};
    for (int i = 0; i < 4000; i++)
        seen[chosen(SHMB_FLOAT32, 3, (float[]){1, 0, 3}, SHMB_SAMPLE_PROBABILITIES, &random)]++;
    CHECK(seen[0] > 900 && seen[0] < 1100 && !seen[1]);
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 4000; i++)
        seen[chosen(SHMB_FLOAT64, 3, (double[]){log(1e300), -INFINITY, log(3e300)},
                    SHMB_SAMPLE_LOGITS, &random)]++;
    CHECK(seen[0] > 900 && seen[0] < 1100 && !seen[1]);

    /* an action already */
    CHECK(chosen(SHMB_INT32, 1, &(int32_t){-5}, SHMB_SAMPLE_LOGITS, &random) == -5);
    CHECK(chosen(SHMB_FLOAT32, 1, &(float){7}, SHMB_ARGMAX, NULL) == 0);
    refused(SHMB_UINT64, 1, &(uint64_t){UINT64_MAX}, SHMB_ARGMAX, SHMB_MODEL);
    refused(SHMB_FLOAT32, 0, NULL, SHMB_ARGMAX, SHMB_MISMATCH);
    refused(SHMB_ANY, 3, ones, SHMB_ARGMAX, SHMB_MISMATCH);
    refused(SHMB_FLOAT32, 3, (float[]){0, NAN, 1}, SHMB_ARGMAX, SHMB_MODEL);
    refused(SHMB_FLOAT32, 3, (float[]){NAN, 0, 1}, SHMB_SAMPLE_PROBABILITIES, SHMB_MODEL);
    refused(SHMB_FLOAT32, 2, (float[]){2, -1}, SHMB_SAMPLE_PROBABILITIES, SHMB_MODEL);
    refused(SHMB_FLOAT32, 2, (float[]){0, 0}, SHMB_SAMPLE_PROBABILITIES, SHMB_MODEL);
    refused(SHMB_FLOAT32, 2, (float[]){INFINITY, 0}, SHMB_SAMPLE_PROBABILITIES, SHMB_MODEL);
    refused(SHMB_FLOAT32, 2, (float[]){-INFINITY, -INFINITY}, SHMB_SAMPLE_LOGITS, SHMB_MODEL);
    refused(SHMB_FLOAT32, 2, (float[]){1, 2}, SHMB_RAW, SHMB_INVALID);
    refused(SHMB_FLOAT32, 2, (float[]){1, 2}, (shmb_choice)-1, SHMB_INVALID);
}
