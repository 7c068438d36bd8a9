/* An action out of advice. Nothing of libm: the same choices on every machine. */
#include <string.h>

#include "convert.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc has it off in -std=c11 */
#endif

static shmb_status refuse(const char **why, shmb_status status, const char *text) {
    if (why) *why = text;
    return status;
}

double shmb_random(uint64_t *random) {
    uint64_t z = *random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* exp(x) for x <= 0, to a few units of the last place; 0 below -708. */
static double exponential(double x) {
    if (x < -708) return 0;
    int64_t n = (int64_t)(x * 1.4426950408889634 - 0.5); /* x = n ln 2 + rest */
    double rest = x - (double)n * 0.6931471803691238 - (double)n * 1.9082149292705877e-10, sum = 1;
    for (int i = 13; i > 0; i--) sum = 1 + rest * sum / i;
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

static double element(const shmb_tensor *t, int64_t i) {
    switch (t->dtype) {
    case SHMB_BOOL:
    case SHMB_UINT8: return ((const uint8_t *)t->data)[i];
    case SHMB_INT8: return ((const int8_t *)t->data)[i];
    case SHMB_INT16: return ((const int16_t *)t->data)[i];
    case SHMB_INT32: return ((const int32_t *)t->data)[i];
    case SHMB_INT64: return (double)((const int64_t *)t->data)[i];
    case SHMB_UINT16: return ((const uint16_t *)t->data)[i];
    case SHMB_UINT32: return ((const uint32_t *)t->data)[i];
    case SHMB_UINT64: return (double)((const uint64_t *)t->data)[i];
    case SHMB_FLOAT16: return half_value(((const uint16_t *)t->data)[i]);
    case SHMB_BFLOAT16: return bfloat_value(((const uint16_t *)t->data)[i]);
    case SHMB_FLOAT32: return ((const float *)t->data)[i];
    case SHMB_FLOAT64: return ((const double *)t->data)[i];
    case SHMB_ANY: break;
    }
    return 0;
}

/* A double cannot tell all of these apart. */
static int64_t greatest_i64(const int64_t *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static int64_t greatest_u64(const uint64_t *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The index of the greatest; -1 where there is a NaN. */
static int64_t greatest(const shmb_tensor *t) {
    if (t->dtype == SHMB_INT64) return greatest_i64(t->data, t->size);
    if (t->dtype == SHMB_UINT64) return greatest_u64(t->data, t->size);
    int64_t best = 0;
    double most = element(t, 0);
    for (int64_t i = 0; i < t->size; i++) {
        double x = element(t, i);
        if (x != x) return -1;
        if (x > most) most = x, best = i;
    }
    return best;
}

/* Of element i, to be chosen; the greatest has 1 among logits. */
static double weight(const shmb_tensor *t, shmb_choice how, int64_t i, double most) {
    double x = element(t, i);
    if (how == SHMB_SAMPLE_PROBABILITIES) return x;
    return x == most ? 1 : exponential(x - most); /* infinity less infinity is a NaN */
}

static shmb_status sample(const shmb_tensor *t, shmb_choice how, double most, uint64_t *random,
                          int64_t *action, const char **why) {
    const double infinity = __builtin_inf();
    double sum = 0, at;
    if (how == SHMB_SAMPLE_LOGITS && most == -infinity)
        return refuse(why, SHMB_MODEL,
                      "expected a logit that may be chosen, found -infinity alone");
    for (int64_t i = 0; i < t->size; i++) {
        double x = weight(t, how, i, most);
        if (x < 0)
            return refuse(
                why, SHMB_MODEL,
                "expected probabilities to sample from, found a negative number: are these logits?");
        sum += x;
    }
    if (!(sum > 0 && sum < infinity))
        return refuse(why, SHMB_MODEL,
                      "expected probabilities to sample from, found a sum of zero or infinity");
    at = shmb_random(random) * sum;
    for (int64_t i = 0; i < t->size; i++) {
        double x = weight(t, how, i, most);
        if (x > 0) *action = i; /* rounding may leave something behind the last */
        if ((at -= x) < 0) break;
    }
    return SHMB_OK;
}

static bool is_integer(shmb_dtype dtype) { return dtype >= SHMB_BOOL && dtype <= SHMB_UINT64; }

shmb_status shmb_choose(const shmb_tensor *t, shmb_choice how, uint64_t *random, int64_t *action,
                        const char **why) {
    if ((unsigned)how > SHMB_SAMPLE_PROBABILITIES)
        return refuse(why, SHMB_INVALID,
                      "expected argmax, or logits or probabilities to sample from");
    if (t->kind != SHMB_TENSOR || !shmb_dtype_size(t->dtype))
        return refuse(why, SHMB_MISMATCH,
                      "expected a tensor of numbers to choose from, found text or a list");
    if (!t->size)
        return refuse(why, SHMB_MISMATCH,
                      "expected a tensor of numbers to choose from, found an empty one");
    if (t->size == 1 && is_integer(t->dtype))
        return convert_tensor(t, SHMB_INT64, action) < 0
                   ? SHMB_OK
                   : refuse(why, SHMB_MODEL, "expected an action, found a number beyond int64");
    if (!t->rank)
        return refuse(why, SHMB_MISMATCH, "expected an action as an integer, found a single float");
    int64_t best = greatest(t);
    if (best < 0) return refuse(why, SHMB_MODEL, "expected numbers to choose from, found a NaN");
    if (how == SHMB_ARGMAX) return *action = best, SHMB_OK;
    return sample(t, how, element(t, best), random, action, why);
}
