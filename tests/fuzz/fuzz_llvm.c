/* libFuzzer: a compiler that sends anything, and a policy that advises anything or fails. The first
 * bytes say how the others are split and what the policy does; "~" in the rest stands for a header,
 * so that observations are met soon. */
#include "../c/kinds.h"
#include "llvm/llvm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const headers[] = {
    "{\"features\":[{\"name\":\"inlining_default\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"inlining_decision\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n{"
    "\"observation\":0}\n",
    "{\"features\":[{\"name\":\"mask\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1,70]}],"
    "\"advice\":{\"name\":\"index_to_evict\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n{"
    "\"observation\":0}\n",
    "{\"features\":[{\"name\":\"li_size\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"priority\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n{\"context\":"
    "\"f\"}\n{\"observation\":0}\n",
    "{\"features\":[{\"name\":\"x\",\"type\":\"uint8_t\",\"port\":0,\"shape\":[3]}],"
    "\"advice\":{\"name\":\"y\",\"type\":\"double\",\"port\":0,\"shape\":[2]}}\n"
    "{\"observation\":0}\n"};

static uint8_t mood; /* what the policy does next */
static uint64_t seen;
static bool ranking; /* was priority asked for last? */

static ANSWERS(policy_evaluate) {
    (void)state, (void)deadline;
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0, n = (size_t)features[i].size * shmb_dtype_size(features[i].dtype); k < n;
             k++)
            seen += ((const uint8_t *)features[i].data)[k];
    const shmb_tensor *decision = &features[count - 1];
    ranking = decision->size == 8 && memcmp(decision->data, "priority", 8) == 0;
    if (mood % 8 == 0)
        return shmb_sink_fail(
            advice, mood / 8 + 1 > SHMB_NO_MEMORY ? SHMB_MODEL : (shmb_status)(mood / 8 + 1),
            "mood");
    shmb_dtype dtype = mood % 8 == 1 ? SHMB_INT32 : want;
    int64_t dims = mood % 8 == 2 ? 2 : 1;
    void *to = shmb_sink_field(advice, "advice", dtype, SHMB_TENSOR, mood % 8 != 3, &dims, NULL);
    if (!to) return SHMB_NO_MEMORY;
    memset(to, mood % 8 == 4 ? 0xff : 0,
           (mood % 8 == 3 ? 1 : (size_t)dims) * shmb_dtype_size(dtype));
    if (mood % 8 > 4) memcpy(to, &mood, 1);
    return SHMB_OK;
}

/* What the compiler gets is what it takes. */
static void check_answer(const struct bytes *answer, shmb_dtype want) {
    float priority = 0;
    CHECK(want != SHMB_ANY && (answer->size % shmb_dtype_size(want)) == 0);
    if (ranking && want == SHMB_FLOAT32 && answer->size == sizeof priority)
        memcpy(&priority, answer->data, sizeof priority);
    CHECK(priority >= 0 && priority < 4294967296.f);
}

/* False when the conversation has failed. */
static bool says(void *state, shmb_runner *r, const uint8_t *bytes, size_t size, size_t piece) {
    struct bytes answer = {0};
    struct error e = {0};
    int got = MORE;
    for (size_t at = 0, used; at < size && (got == MORE || got == ASK || got == GIVEN);
         at += used) {
        size_t n = size - at < piece ? size - at : piece;
        shmb_dtype want = SHMB_ANY;
        uint8_t *exact = malloc(n);
        CHECK(exact);
        memcpy(exact, bytes + at, n);
        got = shmb_llvm_protocol.feed(state, exact, n, &used, r, &want, &e);
        free(exact); /* nothing of it is kept */
        CHECK(used <= n && (got != MORE || used == n));
        answer.size = 0;
        ranking = false;
        if (got == ASK)
            CHECK(shmb_llvm_protocol.answer(state, r, r ? shmb_evaluate_as(r, want) : SHMB_NO_HOST,
                                            &answer) == SHMB_OK);
        if (got == GIVEN)
            CHECK(shmb_llvm_protocol.answer(state, NULL, SHMB_DROPPED, &answer) == SHMB_OK);
        if (got == ASK || got == GIVEN) check_answer(&answer, want);
    }
    shmb_bytes_free(&answer);
    CHECK(got < 0 || (got == (int)e.status && *e.message));
    return got < 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const fallbacks[] = {"", "1", "32", "-1.5e3"};
    if (size < 3) return 0;
    static shmb_runner *runner;
    if (!runner) {
        kind_register("policy", policy_evaluate);
        runner = runner_open("policy://");
    }
    struct error e;
    void *state = shmb_llvm_new(fallbacks[data[0] % 4], &e);
    shmb_runner *r = data[0] & 4 ? NULL : runner;
    size_t piece = data[1] ? data[1] : SIZE_MAX;
    mood = data[2];
    CHECK(state);
    _Atomic int64_t left = 1;
    if (data[0] & 8) shmb_llvm_limit(state, &left);
    bool well = true;
    for (size_t at = 3; at < size && well; at++) {
        const uint8_t *tilde = memchr(data + at, '~', size - at);
        size_t n = tilde ? (size_t)(tilde - data) - at : size - at;
        well = says(state, r, data + at, n, piece);
        at += n;
        if (well && at + 1 < size) {
            const char *header = headers[data[at + 1] % 4];
            mood ^= data[++at];
            well = says(state, r, (const uint8_t *)header, strlen(header), piece);
        }
        if (mood & 128) shmb_llvm_protocol.end(state), mood &= 127;
    }
    shmb_conversation_info info = counted_in(state);
    CHECK(info.defaulted <= info.asked && (info.defaulted == 0) == (info.status == SHMB_OK));
    shmb_llvm_protocol.free(state);
    return 0;
}
