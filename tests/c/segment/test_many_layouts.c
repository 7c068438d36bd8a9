/* Shapes may change from message to message: the layout stays, and no header is sent again. Of more
 * layouts than ids the least recently used gives way, and every message arrives under its name. */
#include "bridge.h"

enum { LAYOUTS = 3 * MAX_LAYOUTS + 1 };

static void ask(struct bridge *b, shmb_runner *r, int i) {
    char name[16];
    snprintf(name, sizeof name, "feature %d", i);
    shmb_set_i64(r, "echo", i);
    shmb_set(r, name, SHMB_FLOAT64, 0, NULL, &(double){i * 0.5});
    for (int k = 0; k < i % 3; k++)
        shmb_set(r, k ? "third" : "second", SHMB_FLOAT32, 0, NULL, &(float){(float)k});
    shmb_tensor t;
    CHECK_STATUS(r, bridge_turn(b, r, SHMB_ANY), SHMB_OK);
    CHECK(shmb_advice_count(r) == 2 + i % 3);
    CHECK_STATUS(r, shmb_advice(r, name, &t), SHMB_OK);
    CHECK(*(const double *)t.data == i * 0.5);
    CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
    CHECK(*(const int64_t *)t.data == i);
}

static void shapes_change(struct bridge *b, shmb_runner *r) {
    struct segment s = bridge_segment(b);
    const struct descriptor *ring = shmb_segment_lane(&s, 0, REQUEST).ring;
    const int64_t shapes[][2] = {{3, 4}, {3, 4}, {4, 3}, {0, 7}, {1, 1}, {1, 1}, {40, 50}, {3, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *dims = shapes[i], size = dims[0] * dims[1];
        int16_t *x = shmb_feature(r, "echo", SHMB_INT16, 2, dims);
        for (int64_t k = 0; k < size; k++) x[k] = (int16_t)(k + (int64_t)i);
        shmb_tensor t;
        CHECK_STATUS(r, bridge_turn(b, r, SHMB_INT16), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
        CHECK(t.dims[0] == dims[0] && t.dims[1] == dims[1]);
        for (int64_t k = 0; k < size; k++)
            CHECK(((const int16_t *)t.data)[k] == (int16_t)(k + (int64_t)i));
        int flags = i == 0 ? NEW : memcmp(dims, shapes[i - 1], sizeof *shapes) != 0 ? DIMS : 0;
        CHECK(ring[i & 1].flags == flags);
    }
    shmb_segment_detach(&s);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "layouts", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    shapes_change(&b, r);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LAYOUTS; i++) ask(&b, r, i);
    for (int i = 0; i < 2000; i++) ask(&b, r, i * i % 7 + i * 31 % LAYOUTS % 20);
    for (int i = 0; i < 200; i++) ask(&b, r, i % MAX_LAYOUTS);
    shmb_close(r);
    bridge_close(&b);
}
