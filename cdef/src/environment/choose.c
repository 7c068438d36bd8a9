/* An action out of advice. Nothing of libm: the same choices on every machine. */
#include <string.h>

#include "message/convert.h"
#include "shmbridge/environment.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc has it off in -std=c11 */
#endif

static shmb_status choose_refuse(const char **why, shmb_status status, const char *text) {
    if (why) *why = text;
    return status;
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

static shmb_number number(const shmb_tensor *t, int64_t i) {
    const uint8_t *data = t->data;
    return shmb_number_at(data + (size_t)i * shmb_dtype_size(t->dtype), t->dtype);
}

static double element(const shmb_tensor *t, int64_t i) { return number(t, i).f; }

/* Both of one dtype. A double cannot tell all integers of 64 bits apart. */
static bool is_greater(shmb_number a, shmb_number b) {
    if (a.form != b.form) return a.form == SHMB_ABOVE_INT64;
    if (a.form == SHMB_WHOLE) return a.i > b.i;
    return a.form == SHMB_REAL ? a.f > b.f : a.u > b.u;
}

/* The index of the greatest; -1 where there is a NaN. */
static int64_t greatest(const shmb_tensor *t) {
    int64_t best = 0;
    shmb_number most = number(t, 0);
    for (int64_t i = 0; i < t->size; i++) {
        shmb_number x = number(t, i);
        if (x.f != x.f) return -1;
        if (is_greater(x, most)) most = x, best = i;
    }
    return best;
}

/* Of element i, to be chosen; the greatest has 1 among logits. */
static double score(const shmb_tensor *t, shmb_choice how, int64_t i, double most) {
    double x = element(t, i);
    if (how == SHMB_SAMPLE_PROBABILITIES) return x;
    return x == most ? 1 : exponential(x - most); /* infinity less infinity is a NaN */
}

static shmb_status sample(const shmb_tensor *t, shmb_choice how, double most, uint64_t *random,
                          int64_t *action, const char **why) {
    const double infinity = __builtin_inf();
    double sum = 0, at;
    if (how == SHMB_SAMPLE_LOGITS && most == -infinity)
        return choose_refuse(why, SHMB_MODEL, "expected a logit above -infinity, found none");
    for (int64_t i = 0; i < t->size; i++) {
        double x = score(t, how, i, most);
        if (x < 0)
            return choose_refuse(why, SHMB_MODEL,
                                 "expected probabilities to sample from, found a negative number: "
                                 "are these logits?");
        sum += x;
    }
    if (!(sum > 0 && sum < infinity))
        return choose_refuse(
            why, SHMB_MODEL,
            "expected probabilities to sample from, found a sum of zero or infinity");
    at = shmb_random(random) * sum;
    for (int64_t i = 0; i < t->size; i++) {
        double x = score(t, how, i, most);
        if (x > 0) *action = i; /* rounding may leave something behind the last */
        if ((at -= x) < 0) break;
    }
    return SHMB_OK;
}

shmb_status shmb_choose(const shmb_tensor *t, shmb_choice how, uint64_t *random, int64_t *action,
                        const char **why) {
    if (!t || !action || (!random && how != SHMB_ARGMAX))
        return choose_refuse(
            why, SHMB_INVALID,
            "expected advice, a random state and a pointer for the action, found NULL");
    if ((unsigned)how > SHMB_SAMPLE_PROBABILITIES)
        return choose_refuse(why, SHMB_INVALID,
                             "expected argmax, or logits or probabilities to sample from");
    if (t->kind != SHMB_TENSOR || !shmb_dtype_size(t->dtype))
        return choose_refuse(why, SHMB_MISMATCH,
                             "expected a tensor of numbers to choose from, found text or a list");
    if (!t->size)
        return choose_refuse(why, SHMB_MISMATCH,
                             "expected a tensor of numbers to choose from, found an empty one");
    if (t->size == 1 && shmb_number_at(t->data, t->dtype).form != SHMB_REAL)
        return shmb_convert_tensor(t, SHMB_INT64, action) < 0
                   ? SHMB_OK
                   : choose_refuse(why, SHMB_MODEL,
                                   "expected an action, found a number beyond int64");
    if (!t->rank)
        return choose_refuse(why, SHMB_MISMATCH,
                             "expected an action as an integer, found a single float");
    int64_t best = greatest(t);
    if (best < 0)
        return choose_refuse(why, SHMB_MODEL, "expected numbers to choose from, found a NaN");
    if (how != SHMB_ARGMAX) return sample(t, how, element(t, best), random, action, why);
    *action = best;
    return SHMB_OK;
}
