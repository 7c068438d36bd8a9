/* More layouts than ids: the least recently used gives way, and every message arrives under its own
 * name. */
#include "bridge.h"

enum { LAYOUTS = 3 * MAX_LAYOUTS + 1 };

static void ask(struct bridge *b, shmb_runner *r, int i) {
    char name[16];
    snprintf(name, sizeof name, "feature %d", i);
    shmb_set_i64(r, "echo", i);
    shmb_set_f64(r, name, i * 0.5);
    for (int k = 0; k < i % 3; k++) shmb_set_f32(r, k ? "third" : "second", (float)k);
    shmb_tensor t;
    CHECK_STATUS(r, bridge_turn(b, r, SHMB_ANY), SHMB_OK);
    CHECK(shmb_advice_count(r) == 2 + i % 3);
    CHECK_STATUS(r, shmb_advice(r, name, &t), SHMB_OK);
    CHECK(*(const double *)t.data == i * 0.5);
    CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
    CHECK(*(const int64_t *)t.data == i);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "layouts", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LAYOUTS; i++) ask(&b, r, i);
    for (int i = 0; i < 2000; i++) ask(&b, r, i * i % 7 + i * 31 % LAYOUTS % 20);
    for (int i = 0; i < 200; i++) ask(&b, r, i % MAX_LAYOUTS);
    shmb_close(r);
    bridge_close(&b);
    return 0;
}
