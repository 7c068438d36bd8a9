/* libFuzzer: plan:// of any bytes; what it opens answers questions with 0 or 1. */
#include "../c/bridge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char url[64];
    shmb_runner *r;
    int file = memfd_create("plan", MFD_CLOEXEC);
    CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(url, sizeof url, "plan:///proc/self/fd/%d", file);
    if (shmb_open(url, NULL, &r) == SHMB_OK)
        for (int64_t i = 0; i < 4; i++) {
            shmb_set_i64(r, "cost", i / 2);
            shmb_set_i64(r, "inlining_default", i % 2);
            CHECK(shmb_evaluate(r) == SHMB_OK);
            int64_t advice = -1;
            CHECK(shmb_advice_i64(r, NULL, &advice) == SHMB_OK && (advice == 0 || advice == 1));
        }
    shmb_close(r);
    close(file);
    return 0;
}
