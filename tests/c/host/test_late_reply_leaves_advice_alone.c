/* A late reply that comes while the next request is filled does not touch the last advice, which is
 * still readable. */
#include "bridge.h"

int main(void) {
    struct bridge b;
    bridge_open(&b, "late", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "deadline=0.01");
    int64_t late[2];
    for (int i = 0; i < 2; i++) {
        late[i] = bridge_ask_x(&b, r, i, SHMB_ANY);
        CHECK_STATUS(r, bridge_result(r), SHMB_TIMEOUT);
        shmb_set_deadline(r, i ? 0 : 0.01);
    }
    CHECK(reply_i64(b.host, late[0], false, 1) == SHMB_OK);
    int64_t key = bridge_ask_x(&b, r, 2, SHMB_ANY);
    /* its slot stays, so the runner has none */
    CHECK(reply_i64(b.host, key, true, 20) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    CHECK(shmb_host_reply_error(b.host, late[1], true, SHMB_MODEL, "no", 2) == SHMB_OK);
    shmb_set_i64(r, "x", 3);
    shmb_tensor t;
    CHECK(shmb_advice_count(r) == 1);
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
    CHECK(*(const int64_t *)t.data == 20);
    /* the late reply's slot takes the request */
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    CHECK(shmb_runner_continue(r) == -1);
    bridge_answer(&b, bridge_receive(&b));
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    shmb_host_release(b.host, key);
    shmb_close(r);
    bridge_close(&b);
}
