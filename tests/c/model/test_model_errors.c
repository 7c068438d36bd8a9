/* A model's error reaches the runner with its code and text, short or long; without a text with the
 * status's. A text that is too long ends with "…", behind a whole character. */
#include "bridge.h"

enum { MOST = sizeof((struct error *)0)->message - 1 };

static void expect_cut(struct bridge *b, shmb_runner *r, const char *text, size_t kept) {
    int64_t key = bridge_ask_x(b, r, 1, SHMB_ANY);
    shmb_host_reply_error(b->host, key, false, SHMB_MODEL, text, strlen(text));
    CHECK_STATUS(r, bridge_result(r), SHMB_MODEL);
    const char *found = shmb_error_message(r);
    CHECK(strncmp(found, text, kept) == 0 && strcmp(found + kept, "…") == 0);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "model", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    static char text[10000];
    memset(text, 'e', sizeof text);
    const size_t sizes[] = {0, 1, 31, 32, 33, MOST, MOST + 1, 4096, 4097, 10000};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int64_t key = bridge_ask_x(&b, r, 1, SHMB_ANY);
            CHECK(shmb_host_reply_error(b.host, key, false, i % 2 ? SHMB_DROPPED : SHMB_MODEL, text,
                                        sizes[i]) == SHMB_OK);
            /* once only */
            CHECK(shmb_host_reply_error(b.host, key, false, SHMB_MODEL, text, 1) ==
                  SHMB_RUNNER_GONE);
            CHECK_STATUS(r, bridge_result(r), i % 2 ? SHMB_DROPPED : SHMB_MODEL);
            size_t found = strlen(shmb_error_message(r));
            if (!sizes[i]) CHECK(strcmp(shmb_error_message(r), shmb_strerror(SHMB_MODEL)) == 0);
            else CHECK(found == (sizes[i] < MOST ? sizes[i] : MOST));
            CHECK(shmb_advice_count(r) == 0);
            bridge_asked(&b, r, 1);
        }
    for (size_t i = 0; i < sizeof text - 2; i += 2) memcpy(text + i, "é", 2);
    text[sizeof text - 2] = 0;
    for (int at = 0; at < 2; at++) expect_cut(&b, r, text + at, MOST - 3 - (MOST - 3 + at) % 2);
    shmb_set_i64(r, "x", 1);
    /* a reply with an error in it is an error on both sides */
    int64_t key = bridge_ask(&b, r, SHMB_ANY);
    shmb_tensor a = {.name = "a", .dtype = SHMB_INT64, .size = 1, .data = &key}, twice[] = {a, a};
    CHECK(shmb_host_reply(b.host, key, false, twice, 2) == SHMB_INVALID);
    CHECK_STATUS(r, bridge_result(r), SHMB_INVALID);
    shmb_close(r);
    bridge_close(&b);
}
