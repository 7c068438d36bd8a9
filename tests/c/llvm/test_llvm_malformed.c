/* Lines that LLVM does not send are left out, and the next ones are read; a header that cannot be
 * answered is a failure that says so; a compiler that dies in the midst of a line leaves nothing
 * behind. */
#include "llvm_compiler.h"

static void expect_failure(const char *bytes, const char *why) {
    for (size_t piece = 1; piece < 3; piece++) {
        struct compiler c = compiler_start("");
        policy_advises(0);
        int got = compiler_says(&c, bytes, strlen(bytes), piece == 2 ? SIZE_MAX : 1);
        if (got != SHMB_CORRUPT || !strstr(c.error.message, why))
            fprintf(stderr, "%s: %d, %s\n", bytes, got, c.error.message);
        CHECK(got == SHMB_CORRUPT && strstr(c.error.message, why));
        compiler_stop(&c);
    }
}

static void expect_skipped(const char *bytes, uint64_t count) {
    for (size_t piece = 1; piece < 3; piece++) {
        struct compiler c = compiler_start("");
        policy_advises(1);
        compiler_line(&c, INLINING_HEADER);
        CHECK(compiler_says(&c, bytes, strlen(bytes), piece == 2 ? SIZE_MAX : 1) == MORE);
        CHECK(compiler_info(&c).skipped == count);
        CHECK(compiler_inlines(&c, 1, 0) == 1 && compiler_info(&c).defaulted == 0);
        compiler_stop(&c);
    }
}

static void long_lines_are_skipped(void) {
    struct compiler c = compiler_start("");
    static char spaces[1 << 16];
    memset(spaces, ' ', sizeof spaces);
    policy_advises(1);
    compiler_line(&c, INLINING_HEADER);
    for (int i = 0; i < 40; i++) CHECK(compiler_says(&c, spaces, sizeof spaces, SIZE_MAX) == MORE);
    compiler_line(&c, "\n");
    CHECK(compiler_inlines(&c, 1, 0) == 1 && compiler_info(&c).skipped == 1);
    compiler_stop(&c);
}

static void tensors_of_another_length_get_the_default(void) {
    struct compiler c = compiler_start("");
    policy_advises(1);
    compiler_line(&c, INLINING_HEADER "{\"observation\":0}\n0123456701234567x");
    CHECK(answer_i64(&c) == 0 && policy.questions == 0);
    CHECK(compiler_info(&c).defaulted == 1 && strstr(compiler_info(&c).why, "newline"));
    compiler_line(&c, "yz\n");
    CHECK(compiler_inlines(&c, 1, 0) == 1 && policy.questions == 1);
    compiler_stop(&c);
}

static void next_compiler_is_accepted(const char *before) {
    struct compiler c = compiler_start("");
    policy_advises(1);
    compiler_line(&c, before);
    shmb_llvm_protocol.end(c.state);
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 1, 0) == 1);
    compiler_stop(&c);
}

int main(void) {
    expect_skipped("no JSON\n", 1);
    expect_skipped("\n", 1);
    expect_skipped("{\"context\":7}\n", 1);
    expect_skipped("{\"outcome\":0}\n{\"gossip\":[1]}\n", 0);
    expect_skipped("{\"gossip\":1}\n\x01\x02\n\xff\n", 2);
    expect_failure("{\"observation\":0}\n", "before the header");
    expect_failure("{\"features\":[]}\n", "advice");
    expect_failure("{\"features\":[{\"name\":\"x\",\"type\":\"int9_t\",\"port\":0,\"shape\":[1]}],"
                   "\"advice\":{}}\n",
                   "");
    expect_failure(
        "{\"features\":[{\"name\":\"x\",\"type\":\"int64_t\",\"port\":0,\"shape\":[4294967296]}],"
        "\"advice\":{\"name\":\"y\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n",
        "bytes");
    long_lines_are_skipped();
    tensors_of_another_length_get_the_default();
    for (const char *const *unfinished =
             TEXTS("", "{", INLINING_HEADER, INLINING_HEADER "{\"observation\":0}\n",
                   INLINING_HEADER "{\"observation\":0}\n0123", "bad\n",
                   INLINING_HEADER "{\"observation\":0}\n0123456701234567x");
         *unfinished; unfinished++)
        next_compiler_is_accepted(*unfinished);
    struct compiler c = compiler_start("");
    compiler_line(&c, INLINING_HEADER "{\"observation\":0}\n0123");
    shmb_llvm_protocol.end(c.state); /* no place to end */
    /* nothing was asked */
    CHECK(shmb_llvm_protocol.answer(c.state, c.runner, SHMB_OK, &c.answer) == SHMB_INVALID);
    compiler_stop(&c);
}
