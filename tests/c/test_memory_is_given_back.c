/* Memory that one large request took is given back after a small one; those of one size keep
 * theirs. */
#include <sys/mman.h>

#include "bridge.h"
#include "shmbridge/plugin.h"

static shmb_status open_it(void *context, const char *where, const shmb_options *options,
                           void **state, shmb_sink *failure) {
    (void)context, (void)where, (void)options, (void)state, (void)failure;
    return SHMB_OK;
}

static shmb_status evaluate(void *state, const shmb_tensor *features, int64_t count,
                            shmb_dtype want, double deadline, shmb_sink *advice) {
    (void)state, (void)count, (void)want, (void)deadline;
    *(uint8_t *)shmb_sink_field(advice, "advice", SHMB_UINT8, SHMB_TENSOR, 0, NULL, NULL) =
        *(const uint8_t *)features->data;
    return SHMB_OK;
}

static bool resident(uint8_t *at) {
    unsigned char in_memory = 0;
    CHECK(mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &in_memory) == 0);
    return in_memory & 1;
}

int main(void) {
    enum { BYTES = 16 << 20 };
    static const shmb_runner_kind kind = {
        .size = sizeof kind, .scheme = "large", .open = open_it, .evaluate = evaluate};
    shmb_runner *r;
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    for (int discards = 0; discards < 2; discards++) {
        CHECK_STATUS(r, shmb_open("large://", NULL, &r), SHMB_OK);
        uint8_t *x = shmb_feature_u8(r, "x", BYTES);
        memset(x, 7, BYTES);
        CHECK(resident(x + BYTES / 2));
        if (discards) shmb_discard(r);
        else CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(shmb_feature_u8(r, "x", BYTES) == x && resident(x + BYTES / 2));
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        *shmb_feature_u8(r, "x", 1) = 1;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(shmb_feature_u8(r, "x", 1) == x && !resident(x + BYTES / 2));
        shmb_close(r);
    }
    return 0;
}
