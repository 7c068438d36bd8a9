/* What an LLVM compiler writes to its interactive channel, and a policy in this process, for the
 * tests of llvm.c. */
#ifndef LLVM_COMPILER_H
#define LLVM_COMPILER_H

#include <math.h>

#include "kinds.h"
#include "llvm/llvm.h"

#define INLINING_HEADER                                                                            \
    "{\"features\":[{\"name\":\"callee_users\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"    \
    "{\"name\":\"inlining_default\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}],"              \
    "\"advice\":{\"name\":\"inlining_decision\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n"
#define EVICTION_HEADER EVICTION_HEADER_OF("33")
#define EVICTION_HEADER_OF(ranges)                                                                 \
    "{\"features\":[{\"name\":\"progress\",\"type\":\"float\",\"port\":0,\"shape\":[1]},"          \
    "{\"name\":\"mask\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1," ranges "]}],"               \
    "\"advice\":{\"name\":\"index_to_evict\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n"
#define PRIORITY_HEADER                                                                            \
    "{\"features\":[{\"name\":\"li_size\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"         \
    "{\"name\":\"weight\",\"type\":\"float\",\"port\":0,\"shape\":[1]}],"                          \
    "\"advice\":{\"name\":\"priority\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n"

/* ---- The policy: a runner whose advice is what the test says ---- */

static struct policy {
    shmb_status fails;
    shmb_dtype dtype;
    int32_t rank;
    int64_t dims[2];
    int64_t i;
    float f;
    int fields, questions;
    char seen[1024]; /* the last question: "name=first value, ..." */
} policy;

static void policy_see(const shmb_tensor *t) {
    size_t used = strlen(policy.seen);
    char *to = policy.seen + used;
    size_t room = sizeof policy.seen - used;
    if (t->kind == SHMB_STRING)
        snprintf(to, room, "%s='%.*s' ", t->name, (int)t->size, (const char *)t->data);
    else if (t->dtype == SHMB_FLOAT32)
        snprintf(to, room, "%s[%d]=%g ", t->name, (int)t->size, (double)*(const float *)t->data);
    else snprintf(to, room, "%s[%d]=%lld ", t->name, (int)t->size, *(const long long *)t->data);
}

static ANSWERS(policy_evaluate) {
    policy.questions++;
    policy.seen[0] = 0;
    for (int64_t i = 0; i < count; i++) policy_see(&features[i]);
    if (policy.fails) return shmb_sink_fail(advice, policy.fails, "the policy says why");
    for (int i = 0; i < policy.fields; i++) {
        char *to = shmb_sink_field(advice, i ? "more" : "advice", policy.dtype, SHMB_TENSOR,
                                   policy.rank, policy.dims, NULL);
        CHECK(to);
        for (int64_t k = 0, n = policy.rank ? policy.dims[0] : 1; k < n;
             k++, to += shmb_dtype_size(policy.dtype))
            memcpy(to, policy.dtype == SHMB_FLOAT32 ? (void *)&policy.f : (void *)&policy.i,
                   shmb_dtype_size(policy.dtype));
    }
    return SHMB_OK;
}

static inline void policy_advises(int64_t i) {
    policy = (struct policy){.dtype = SHMB_INT64, .i = i, .fields = 1};
}
static inline void policy_prefers(float f) {
    policy = (struct policy){.dtype = SHMB_FLOAT32, .f = f, .fields = 1};
}
static inline void policy_fails(shmb_status status) { policy = (struct policy){.fails = status}; }

/* ---- The compiler ---- */

struct compiler {
    void *state;
    shmb_runner *runner;
    struct error error;
    struct bytes answer;
};

/* One runner for every compiler, as in a host, until a failure ends it. (A new one reserves
 * gigabytes, which takes qemu a tenth of a second.) */
static shmb_runner *policy_runner;

static inline void policy_close(void) {
    shmb_close(policy_runner);
    policy_runner = NULL;
}

static inline struct compiler compiler_start(const char *fallback) {
    static bool known;
    struct compiler c = {0};
    if (!known) kind_register("policy", policy_evaluate);
    known = true;
    if (!policy_runner) policy_runner = runner_open("policy://");
    c.runner = policy_runner;
    CHECK((c.state = shmb_llvm_new(fallback, &c.error)));
    return c;
}

static inline void compiler_stop(struct compiler *c) {
    shmb_llvm_protocol.free(c->state);
    shmb_bytes_free(&c->answer);
}

/* What comes of these bytes, given in pieces of `piece`: the last MORE or failure; every question
 * is asked and answered. */
static inline int compiler_says(struct compiler *c, const void *bytes, size_t size, size_t piece) {
    const uint8_t *at = bytes, *end = at + size;
    int got = MORE;
    while (at < end && (got == MORE || got == ASK || got == GIVEN)) {
        size_t used, n = (size_t)(end - at) < piece ? (size_t)(end - at) : piece;
        shmb_dtype want = SHMB_ANY;
        got = shmb_llvm_protocol.feed(c->state, at, n, &used, c->runner, &want, &c->error);
        CHECK(used <= n && (got != MORE || used == n));
        at += used;
        if (got == ASK)
            CHECK(shmb_llvm_protocol.answer(c->state, c->runner, shmb_evaluate_as(c->runner, want),
                                            &c->answer) == SHMB_OK);
        if (got == GIVEN)
            CHECK(shmb_llvm_protocol.answer(c->state, NULL, SHMB_DROPPED, &c->answer) == SHMB_OK);
    }
    return got;
}

static inline int compiler_line(struct compiler *c, const char *line) {
    return compiler_says(c, line, strlen(line), SIZE_MAX);
}

/* One observation, its answer in the first bytes of c->answer. */
static inline void compiler_observes(struct compiler *c, const void *tensors, size_t size) {
    c->answer.size = 0;
    compiler_line(c, "{\"observation\":0}\n");
    compiler_says(c, tensors, size, SIZE_MAX);
    compiler_line(c, "\n");
}

static inline int64_t answer_i64(const struct compiler *c) {
    int64_t value;
    CHECK(c->answer.size == sizeof value);
    memcpy(&value, c->answer.data, sizeof value);
    return value;
}

static inline int64_t compiler_inlines(struct compiler *c, int64_t users, int64_t by_default) {
    compiler_observes(c, (int64_t[]){users, by_default}, 2 * sizeof users);
    return answer_i64(c);
}

/* Of so many live ranges; allowed: bit i for mask[i]. */
static inline int64_t compiler_evicts_of(struct compiler *c, int ranges, uint64_t allowed) {
    size_t size = sizeof(float) + (size_t)ranges * sizeof(int64_t);
    unsigned char *tensors = calloc(1, size);
    CHECK(tensors);
    for (int i = 0; i < ranges && i < 64; i++)
        memcpy(tensors + sizeof(float) + (size_t)i * sizeof(int64_t), &(int64_t){allowed >> i & 1},
               sizeof(int64_t));
    compiler_observes(c, tensors, size);
    free(tensors);
    return answer_i64(c);
}

static inline int64_t compiler_evicts(struct compiler *c, uint64_t allowed) {
    return compiler_evicts_of(c, 33, allowed);
}

static inline float compiler_ranks(struct compiler *c, int64_t li_size) {
    unsigned char tensors[sizeof li_size + sizeof(float)];
    float value = 0.5f;
    memcpy(tensors, &li_size, sizeof li_size);
    memcpy(tensors + sizeof li_size, &value, sizeof value);
    compiler_observes(c, tensors, sizeof tensors);
    CHECK(c->answer.size == sizeof value);
    memcpy(&value, c->answer.data, sizeof value);
    return value;
}

static inline shmb_conversation_info compiler_info(const struct compiler *c) {
    return counted_in(c->state);
}

#endif
