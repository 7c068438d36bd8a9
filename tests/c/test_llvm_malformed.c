/* Bytes that LLVM does not send are a failure that says so; a compiler that dies in the midst of a line leaves nothing behind. */
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

static void lines_without_end_are_refused(void) {
    struct compiler c = compiler_start("");
    static char spaces[1 << 16];
    memset(spaces, ' ', sizeof spaces);
    int got = MORE;
    for (int i = 0; i < 20 && got == MORE; i++)
        got = compiler_says(&c, spaces, sizeof spaces, SIZE_MAX);
    CHECK(got == SHMB_CORRUPT);
    compiler_stop(&c);
}

static void next_compiler_is_accepted(const char *before) {
    struct compiler c = compiler_start("");
    policy_advises(1);
    compiler_line(&c, before);
    llvm_protocol.end(c.state);
    compiler_line(&c, INLINING_HEADER);
    CHECK(compiler_inlines(&c, 1, 0) == 1);
    compiler_stop(&c);
}

int main(void) {
    expect_failure("no JSON\n", "");
    expect_failure("\n", "");
    expect_failure("{\"observation\":0}\n", "before the header");
    expect_failure("{\"features\":[]}\n", "advice");
    expect_failure(
        "{\"features\":[{\"name\":\"x\",\"type\":\"int9_t\",\"port\":0,\"shape\":[1]}],\"advice\":{}}\n",
        "");
    expect_failure("{\"context\":7}\n", "");
    expect_failure(
        "{\"features\":[{\"name\":\"x\",\"type\":\"int64_t\",\"port\":0,\"shape\":[4294967296]}],"
        "\"advice\":{\"name\":\"y\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n",
        "bytes");
    expect_failure(INLINING_HEADER "{\"observation\":0}\n0123456701234567x", "newline");
    lines_without_end_are_refused();
    static const char *const unfinished[] = {"",
                                             "{",
                                             INLINING_HEADER,
                                             INLINING_HEADER "{\"observation\":0}\n",
                                             INLINING_HEADER "{\"observation\":0}\n0123",
                                             "bad\n"};
    for (size_t i = 0; i < sizeof unfinished / sizeof *unfinished; i++)
        next_compiler_is_accepted(unfinished[i]);
    struct compiler c = compiler_start("");
    compiler_line(&c, INLINING_HEADER "{\"observation\":0}\n0123");
    CHECK(!llvm_protocol.end(c.state)); /* that was no place to end */
    CHECK(llvm_protocol.answer(c.state, c.runner, SHMB_OK, &c.answer) ==
          SHMB_INVALID); /* nothing was asked */
    compiler_stop(&c);
    return 0;
}
