/* Names that make no message are INVALID over pipes as in shared memory, whatever the SerDes: the
 * host hears nothing, and the runner goes on. */
#include "pipes.h"

static void expect_invalid(shmb_runner *r, const char *why) {
    CHECK_STATUS(r, shmb_evaluate_as(r, SHMB_UINT8), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), why));
}

int main(void) {
    static const char *const serdes[] = {"bitstream", "json", "flatbuffers", "bytes"};
    for (size_t s = 0; s < 4; s++) {
        struct pipes p;
        pipes_make(&p, "");
        snprintf(p.url, sizeof p.url, "pipe://%s?serdes=%s&deadline=5", p.path, serdes[s]);
        shmb_runner *r = pipes_meet(&p);
        for (const char *const *bad =
                 TEXTS("\xff", "a\x80", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80");
             *bad; bad++) {
            *feature_u8(r, *bad, 1) = 1;
            expect_invalid(r, "UTF-8");
        }
        *feature_u8(r, "x", 1) = 1;
        *feature_u8(r, "x", 1) = 2;
        expect_invalid(r, "two fields have the same name: x");
        struct pollfd end = {.fd = p.from, .events = POLLIN};
        CHECK(poll(&end, 1, 0) == 0);
        pipes_start(r, "hello");
        pipes_await(p.from, POLLIN);
        shmb_close(r);
        pipes_remove(&p);
    }
}
