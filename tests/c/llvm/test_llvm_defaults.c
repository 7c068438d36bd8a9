/* A policy that has nothing to say, or says what the compiler must not get, is replaced by a
 * default; each is counted. */
#include "llvm_compiler.h"

static void inlining_takes_what_llvm_would(void) {
    struct compiler c = compiler_start("");
    policy_fails(SHMB_MODEL);
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 3, 1) == 1);
    CHECK(compiler_inlines(&c, 3, 0) == 0);
    CHECK(compiler_inlines(&c, 3, 77) == 0);
    CHECK(policy.questions == 3);
    shmb_conversation_info info = compiler_info(&c);
    CHECK(info.asked == 3 && info.defaulted == 3 && info.status == SHMB_MODEL &&
          strcmp(info.why, "the policy says why") == 0);
    compiler_stop(&c);
}

static void eviction_takes_the_last_allowed(void) {
    struct compiler c = compiler_start("");
    policy_fails(SHMB_MODEL);
    compiler_line(&c, EVICTION_HEADER);
    CHECK(compiler_evicts(&c, UINT64_C(1) << 32 | 5) == 32);
    CHECK(compiler_evicts(&c, 5) == 2);
    CHECK(compiler_evicts(&c, 1) == 0);
    CHECK(compiler_evicts(&c, 0) == 32);
    compiler_stop(&c);
}

/* Were these read as int64, they would end behind their tensors. */
static void hints_of_other_dtypes_are_none(void) {
    struct compiler c = compiler_start("");
    policy_fails(SHMB_MODEL);
    compiler_line(&c,
                  "{\"features\":[{\"name\":\"inlining_default\",\"type\":\"int32_t\",\"port\":0,"
                  "\"shape\":[1]},{\"name\":\"x\",\"type\":\"int32_t\",\"port\":0,\"shape\":[1]}],"
                  "\"advice\":{\"name\":\"inlining_decision\",\"type\":\"int64_t\",\"port\":0,"
                  "\"shape\":[1]}}\n");
    compiler_observes(&c, (int32_t[]){1, 0}, 8);
    CHECK(answer_i64(&c) == 0);
    compiler_line(&c,
                  "{\"features\":[{\"name\":\"mask\",\"type\":\"float\",\"port\":0,\"shape\":[1,"
                  "4]},{\"name\":\"x\",\"type\":\"int64_t\",\"port\":0,\"shape\":[2]}],"
                  "\"advice\":{\"name\":\"index_to_evict\",\"type\":\"int64_t\",\"port\":0,"
                  "\"shape\":[1]}}\n");
    compiler_observes(&c, (float[8]){1, 1}, 32);
    CHECK(answer_i64(&c) == 3);
    compiler_stop(&c);
}

static void priority_takes_the_size(void) {
    struct compiler c = compiler_start("");
    policy_fails(SHMB_DROPPED);
    compiler_line(&c, PRIORITY_HEADER);
    CHECK(compiler_ranks(&c, 640) == 640);
    compiler_stop(&c);
}

static void user_chooses(void) {
    struct compiler c = compiler_start("3");
    policy_fails(SHMB_MODEL);
    compiler_line(&c, EVICTION_HEADER);
    CHECK(compiler_evicts(&c, 0xff) == 3);
    CHECK(compiler_evicts(&c, 7) == 2); /* 3 is not allowed */
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 1, 1) == 1); /* 3 is no inlining decision */
    compiler_stop(&c);
    c = compiler_start("0.7");
    compiler_line(&c, PRIORITY_HEADER);
    CHECK(compiler_ranks(&c, 9) == 0.7f);
    compiler_stop(&c);
    c = compiler_start("0");
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 1, 1) == 0); /* the user's word is above LLVM's */
    compiler_stop(&c);
    for (const char *const *wrong = TEXTS("x", "1x", "1e999", "NaN", "-", " ,"); *wrong; wrong++) {
        struct error e = {0};
        CHECK(!shmb_llvm_new(*wrong, &e) && e.status == SHMB_INVALID && strstr(e.message, *wrong));
    }
}

static void expect_refused(struct compiler *c, shmb_status status, uint64_t defaulted) {
    shmb_conversation_info info = compiler_info(c);
    CHECK(info.defaulted == defaulted && info.status == status && *info.why);
}

static void advice_is_checked(void) {
    struct compiler c = compiler_start("");
    compiler_line(&c, INLINING_HEADER);
    policy_advises(2);
    CHECK(compiler_inlines(&c, 1, 1) == 1);
    policy_advises(-1);
    CHECK(compiler_inlines(&c, 1, 0) == 0);
    expect_refused(&c, SHMB_INVALID, 2);
    compiler_line(&c, EVICTION_HEADER);
    const int64_t wrong[] = {-1, 33, 4, INT64_MIN, INT64_MAX, 64};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        policy_advises(wrong[i]);
        CHECK(compiler_evicts(&c, 11) == 3);
    }
    policy_advises(1);
    CHECK(compiler_evicts(&c, 11) == 1);
    expect_refused(&c, SHMB_INVALID, 8);
    compiler_line(&c, PRIORITY_HEADER);
    policy_prefers(INFINITY);
    CHECK(compiler_ranks(&c, 5) == 5);
    policy_prefers(NAN);
    CHECK(compiler_ranks(&c, 6) == 6);
    policy_prefers(0.25f);
    CHECK(compiler_ranks(&c, 7) == 0.25f);
    expect_refused(&c, SHMB_INVALID, 10);
    compiler_stop(&c);
}

static void advice_is_one_element_of_the_right_dtype(void) {
    struct compiler c = compiler_start("");
    compiler_line(&c, INLINING_HEADER);
    policy_prefers(1);
    CHECK(compiler_inlines(&c, 1, 0) == 0);
    expect_refused(&c, SHMB_MISMATCH, 1);
    policy_advises(1);
    policy.rank = 1, policy.dims[0] = 2;
    CHECK(compiler_inlines(&c, 1, 0) == 0);
    policy.dims[0] = 0;
    CHECK(compiler_inlines(&c, 1, 0) == 0);
    policy.rank = 2, policy.dims[0] = policy.dims[1] = 1; /* any shape of one element will do */
    CHECK(compiler_inlines(&c, 1, 0) == 1);
    policy.fields = 2;
    CHECK(compiler_inlines(&c, 1, 0) == 0);
    expect_refused(&c, SHMB_MISMATCH, 4);
    compiler_stop(&c);
}

static void some_failures_end_the_asking(void) {
    const shmb_status final[] = {SHMB_TIMEOUT, SHMB_HOST_GONE, SHMB_CLOSED, SHMB_CORRUPT};
    const shmb_status passing[] = {SHMB_MODEL, SHMB_DROPPED, SHMB_MISMATCH, SHMB_INTERRUPTED,
                                   SHMB_TOO_LARGE};
    for (int i = 0; i < 9; i++) {
        struct compiler c = compiler_start("");
        compiler_line(&c, INLINING_HEADER);
        policy_fails(i < 4 ? final[i] : passing[i - 4]);
        for (int k = 0; k < 3; k++) CHECK(compiler_inlines(&c, 1, 1) == 1);
        CHECK(policy.questions == (i < 4 ? 1 : 3));
        expect_refused(&c, policy.fails, 3);
        shmb_set_deadline(c.runner, 0); /* asks again */
        policy_advises(1);
        CHECK(compiler_inlines(&c, 1, 0) == (i > 3)); /* the conversation does not */
        shmb_llvm_protocol.end(c.state);
        /* another compiler, another chance, but where the runner itself has ended */
        compiler_line(&c, INLINING_HEADER);
        policy_advises(1);
        int asks = i == 0 || i > 3;
        CHECK(compiler_inlines(&c, 1, 0) == asks && policy.questions == asks);
        uint64_t defaulted = i > 3 ? 3 : i ? 5 : 4;
        CHECK(compiler_info(&c).asked == 5 && compiler_info(&c).defaulted == defaulted);
        compiler_stop(&c);
        policy_close();
    }
}

static void unknown_decisions_are_asked_too(void) {
    struct compiler c = compiler_start("");
    compiler_line(&c, "{\"features\":[],\"advice\":{\"name\":\"unroll\",\"type\":\"int64_t\","
                      "\"port\":0,\"shape\":[2]}}\n");
    policy_advises(9);
    policy.rank = 1, policy.dims[0] = 2;
    compiler_observes(&c, "", 0);
    CHECK(c.answer.size == 16 && memcmp(c.answer.data, (int64_t[]){9, 9}, 16) == 0);
    policy.dims[0] = 3;
    compiler_observes(&c, "", 0);
    CHECK(c.answer.size == 16 && memcmp(c.answer.data, (int64_t[]){0, 0}, 16) == 0);
    compiler_stop(&c);
}

static void expect_sizes_of(const char *header, int ranges) {
    struct compiler c = compiler_start("");
    CHECK(compiler_line(&c, header) == MORE);
    int last = ranges < 64 ? ranges - 1 : 63;
    policy_fails(SHMB_MODEL);
    CHECK(compiler_evicts_of(&c, ranges, UINT64_C(1) << last) == last);
    CHECK(compiler_evicts_of(&c, ranges, 0) == ranges - 1);
    policy_advises(ranges);
    CHECK(compiler_evicts_of(&c, ranges, 1) == 0);
    policy_advises(last);
    CHECK(compiler_evicts_of(&c, ranges, UINT64_C(1) << last) == last);
    CHECK(compiler_info(&c).defaulted == 3);
    compiler_stop(&c);
}

static void sizes_are_the_headers(void) {
    expect_sizes_of(EVICTION_HEADER_OF("1"), 1);
    expect_sizes_of(EVICTION_HEADER_OF("7"), 7);
    expect_sizes_of(EVICTION_HEADER_OF("65"), 65);
    expect_sizes_of(EVICTION_HEADER_OF("600"), 600);
    struct compiler c = compiler_start("");
    policy_fails(SHMB_MODEL);
    compiler_line(&c, EVICTION_HEADER_OF("0"));
    CHECK(compiler_evicts_of(&c, 0, 0) == 0);
    compiler_line(&c, EVICTION_HEADER_OF("40")); /* another function's, in the same conversation */
    CHECK(compiler_evicts_of(&c, 40, UINT64_C(1) << 39) == 39);
    compiler_stop(&c);
}

/* LLVM 22 makes 0xffffffff of -1, the highest priority that there is, and 0 of 1e30. */
static void priorities_saturate(void) {
    struct compiler c = compiler_start("-7");
    compiler_line(&c, PRIORITY_HEADER);
    const float said[] = {-1, -1e30f, -0.0f, 1.5f, 4294967040, 4294967296, 1e30f},
                sent[] = {0, 0, 0, 1.5f, 4294967040, 4294967040, 4294967040};
    for (int i = 0; i < 7; i++) {
        policy_prefers(said[i]);
        CHECK(compiler_ranks(&c, 5) == sent[i]);
    }
    CHECK(compiler_info(&c).defaulted == 0);
    policy_fails(SHMB_MODEL);
    CHECK(compiler_ranks(&c, 5) == 0);
    compiler_stop(&c);
    c = compiler_start("");
    compiler_line(&c, PRIORITY_HEADER);
    CHECK(compiler_ranks(&c, INT64_MIN) == 0 && compiler_ranks(&c, INT64_MAX) == 4294967040);
    compiler_stop(&c);
}

static void limit_leaves_the_rest_to_llvm(void) {
    _Atomic int64_t left = 3;
    struct compiler c = compiler_start("0"), d = compiler_start("0.5");
    shmb_llvm_limit(c.state, &left);
    shmb_llvm_limit(d.state, &left);
    policy_advises(1);
    compiler_line(&c, INLINING_HEADER);
    compiler_line(&d, PRIORITY_HEADER);
    CHECK(compiler_inlines(&c, 1, 0) == 1);
    CHECK(compiler_ranks(&d, 7) == 0.5f); /* asked, and of the wrong dtype */
    CHECK(compiler_inlines(&c, 1, 0) == 1);
    /* LLVM's word, not the user's */
    CHECK(compiler_inlines(&c, 1, 0) == 0 && compiler_inlines(&c, 1, 1) == 1);
    CHECK(compiler_ranks(&d, 7) == 0.5f);
    CHECK(policy.questions == 3 && left == -3);
    shmb_conversation_info inlined = compiler_info(&c), ranked = compiler_info(&d);
    CHECK(inlined.asked == 2 && inlined.defaulted == 0 && ranked.asked == 1 &&
          ranked.defaulted == 1);
    compiler_stop(&c);
    compiler_stop(&d);
}

int main(void) {
    inlining_takes_what_llvm_would();
    eviction_takes_the_last_allowed();
    hints_of_other_dtypes_are_none();
    priority_takes_the_size();
    user_chooses();
    advice_is_checked();
    advice_is_one_element_of_the_right_dtype();
    some_failures_end_the_asking();
    unknown_decisions_are_asked_too();
    limit_leaves_the_rest_to_llvm();
    sizes_are_the_headers();
    priorities_saturate();
}
