/* Shapes may change from message to message: the layout stays, and no header is sent again. */
#include "bridge.h"

int main(void) {
    struct bridge b;
    bridge_open(&b, "shapes", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    struct segment s = bridge_segment(&b);
    const struct descriptor *ring = shmb_segment_lane(&s, 0, REQUEST).ring;
    const int64_t shapes[][2] = {{3, 4}, {3, 4}, {4, 3}, {0, 7}, {1, 1}, {1, 1}, {40, 50}, {3, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *dims = shapes[i], size = dims[0] * dims[1];
        int16_t *x = shmb_feature(r, "echo", SHMB_INT16, 2, dims);
        for (int64_t k = 0; k < size; k++) x[k] = (int16_t)(k + (int64_t)i);
        shmb_tensor t;
        CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT16), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
        CHECK(t.dims[0] == dims[0] && t.dims[1] == dims[1]);
        for (int64_t k = 0; k < size; k++)
            CHECK(((const int16_t *)t.data)[k] == (int16_t)(k + (int64_t)i));
        int flags = i == 0 ? NEW : memcmp(dims, shapes[i - 1], sizeof *shapes) != 0 ? DIMS : 0;
        CHECK(ring[i & 1].flags == flags);
    }
    shmb_segment_detach(&s);
    shmb_close(r);
    bridge_close(&b);
    return 0;
}
