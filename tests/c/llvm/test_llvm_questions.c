/* Headers, contexts and observations become questions, however the bytes are split, and whatever
 * other lines stand between. */
#include "llvm_compiler.h"

static const char question[] = "li_size[1]=%d weight[1]=%g context='%s' decision='priority' ";

static size_t add(char *to, const char *line) { return strlen(strcpy(to, line)); }

/* An observation of 7 and 0.5, whose bytes hold a newline. */
static size_t add_observation(char *to, int64_t size) {
    float weight = 0.5f;
    size_t n = add(to, "{\"observation\":3}\n");
    memcpy(to + n, &size, sizeof size);
    memcpy(to + n + sizeof size, &weight, sizeof weight);
    to[n + sizeof size + sizeof weight] = '\n';
    return n + sizeof size + sizeof weight + 1;
}

static void expect_question(int size, const char *context) {
    char expected[256];
    snprintf(expected, sizeof expected, question, size, 0.5, context);
    if (strcmp(policy.seen, expected) != 0) fprintf(stderr, "found %s\n", policy.seen);
    CHECK(strcmp(policy.seen, expected) == 0);
}

static void splits_anywhere(void) {
    char all[4096];
    size_t n = add(all, PRIORITY_HEADER);
    n += add(all + n, "{\"context\":\"first\"}\n");
    n += add_observation(all + n, '\n');
    n += add(all + n, "{\"context\":\"_Z1g\\\"\\u00e4\"}\n{\"outcome\":0}\n");
    n += add_observation(all + n, 7);
    n += add_observation(all + n, 8);
    for (size_t piece = 1; piece <= n; piece++) {
        struct compiler c = compiler_start("");
        policy_prefers(2.5f);
        CHECK(compiler_says(&c, all, n, piece) == ASK);
        CHECK(policy.questions == 3 && c.answer.size == 3 * sizeof(float));
        for (int i = 0; i < 3; i++)
            CHECK(memcmp(c.answer.data + (size_t)i * sizeof(float), &policy.f, sizeof(float)) == 0);
        expect_question(8, "_Z1g\"\xc3\xa4");
        shmb_llvm_protocol.end(c.state);
        CHECK(compiler_info(&c).asked == 3 && compiler_info(&c).defaulted == 0);
        compiler_stop(&c);
    }
}

static void header_may_change(void) {
    struct compiler c = compiler_start("");
    policy_prefers(1);
    compiler_line(&c, PRIORITY_HEADER "{\"context\":\"f\"}\n");
    CHECK(compiler_ranks(&c, 4) == 1);
    expect_question(4, "f");
    policy_advises(1);
    /* without an end between: the first compiler had no more to say */
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 9, 0) == 1);
    CHECK(strcmp(
              policy.seen,
              "callee_users[1]=9 inlining_default[1]=0 context='' decision='inlining_decision' ") ==
          0);
    shmb_llvm_protocol.end(c.state);
    compiler_line(&c, EVICTION_HEADER);
    CHECK(compiler_evicts(&c, 2) == 1);
    CHECK(strcmp(policy.seen, "progress[1]=0 mask[33]=0 context='' decision='index_to_evict' ") ==
          0);
    CHECK(compiler_info(&c).asked == 3);
    compiler_stop(&c);
}

static void no_runner_is_needed(void) {
    struct compiler c = compiler_start("");
    shmb_runner *runner = c.runner;
    c.runner = NULL;
    compiler_line(&c, PRIORITY_HEADER);
    CHECK(compiler_ranks(&c, 12) == 12);
    CHECK(compiler_info(&c).defaulted == 1);
    c.runner = runner;
    compiler_stop(&c);
}

int main(void) {
    splits_anywhere();
    header_may_change();
    no_runner_is_needed();
}
