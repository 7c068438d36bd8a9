/* Bound features keep their address and contents for the runner's life; mixing them with others is
 * an error. */
#include "bridge.h"

static void mixing_is_an_error(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    int64_t *x = shmb_bind(r, "x", SHMB_INT64, 0, NULL);
    *x = 4;
    shmb_set_i64(r, "y", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK_STATUS(r, bridge_turn(b, r, SHMB_INT64), SHMB_OK); /* the bound ones are still there */
    shmb_close(r);
    r = bridge_connect(b, "");
    shmb_set_i64(r, "y", 1);
    memset(shmb_bind(r, "x", SHMB_INT64, 1, &(int64_t){10}), 0, 80);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "bind", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    int64_t *x = shmb_bind(r, "echo", SHMB_INT64, 0, NULL);
    float *y = shmb_bind(r, "y", SHMB_FLOAT32, 2, (const int64_t[]){3, 5});
    CHECK((uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0);
    *x = 0;
    for (int i = 0; i < 15; i++) y[i] = (float)i;
    for (int i = 0; i < 20; i++) {
        shmb_tensor t;
        *x += 1; /* contents survive */
        y[i % 15] += 100;
        int64_t key = bridge_ask(&b, r, SHMB_ANY);
        /* what is read must be copied */
        CHECK(key & SHMB_KEY_COPY);
        bridge_echo(&b, key, false);
        CHECK_STATUS(r, bridge_result(r), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
        CHECK(*(const int64_t *)t.data == i + 1);
        CHECK_STATUS(r, shmb_advice(r, "y", &t), SHMB_OK);
        CHECK(memcmp(t.data, y, 15 * sizeof *y) == 0);
    }
    shmb_close(r);
    mixing_is_an_error(&b);
    bridge_close(&b);
    return 0;
}
