/* Names that make no message are INVALID when evaluated, say so, and leave the runner usable. */
#include "bridge.h"

static struct server server;
static shmb_runner *r;

static void expect(shmb_status status, const char *message) {
    CHECK_STATUS(r, shmb_evaluate(r), status);
    if (!strstr(shmb_error_message(r), message)) {
        fprintf(stderr, "expected \"…%s…\", found \"%s\"\n", message, shmb_error_message(r));
        exit(1);
    }
    int64_t advice;
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 2);
}

int main(void) {
    server_start(&server, "names", SHMB_WAIT_DEFAULT);
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    shmb_set_i64(r, "x", 1);
    shmb_set_i64(r, "x", 2);
    expect(SHMB_INVALID, "same name");
    shmb_set_i64(r, "", 1);
    expect(SHMB_INVALID, "name");
    shmb_set_i64(r, NULL, 1);
    expect(SHMB_INVALID, "name");
    const char *const bad[] = {"\xff",     "a\x80",        "\xc0\xaf",
                               "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        shmb_set_i64(r, bad[i], 1);
        expect(SHMB_INVALID, "UTF-8");
    }
    shmb_set_i64(r, "\xe2\x82\xac and \xf0\x9f\x98\x80", 1); /* what is UTF-8 is fine */
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
