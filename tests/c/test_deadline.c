/* A deadline that passes is TIMEOUT; late replies are dropped, their slots recovered, also after many in a row. */
#include "bridge.h"

static void ask(shmb_runner *r, int64_t x, shmb_status expected) {
    int64_t advice = -1;
    shmb_set_i64(r, "x", x);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), expected);
    CHECK(advice == (expected ? -1 : x + 1));
}

int main(void) {
    struct server s;
    bridge_open(&s.bridge, "deadline", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&s.bridge, "deadline=0.01");
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            ask(r, i, SHMB_TIMEOUT); /* two are sent, the third finds no slot */
        CHECK(strstr(shmb_error_message(r), "0.01"));
        shmb_set_deadline(r, 0);
        if (round %
            2) { /* this time the late replies are there before the next request is filled */
            bridge_answer(&s.bridge, bridge_receive(&s.bridge));
            bridge_answer(&s.bridge, bridge_receive(&s.bridge));
        }
        server_run(&s);
        for (int i = 0; i < 50; i++) ask(r, 1000 * round + i, SHMB_OK);
        server_halt(&s);
        shmb_set_deadline(r, 0.01);
    }
    shmb_close(r);
    bridge_close(&s.bridge);
    return 0;
}
