/* Memory that one large request took is given back after a small one; those of one size keep
 * theirs. */
#include <sys/mman.h>

#include "kinds.h"

static ANSWERS(evaluate) { return advise_i64(advice, *(const uint8_t *)features->data); }

static bool resident(uint8_t *at) {
    unsigned char in_memory = 0;
    CHECK(mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &in_memory) == 0);
    return in_memory & 1;
}

int main(void) {
    enum { BYTES = 16 << 20 };
    kind_register("large", evaluate);
    for (int discards = 0; discards < 2; discards++) {
        shmb_runner *r = runner_open("large://");
        uint8_t *x = feature_u8(r, "x", BYTES);
        memset(x, 7, BYTES);
        CHECK(resident(x + BYTES / 2));
        if (discards) shmb_discard(r);
        else CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(feature_u8(r, "x", BYTES) == x && resident(x + BYTES / 2));
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        *feature_u8(r, "x", 1) = 1;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(feature_u8(r, "x", 1) == x && !resident(x + BYTES / 2));
        shmb_close(r);
    }
}
