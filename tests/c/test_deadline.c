/* A deadline that passes is TIMEOUT; late replies are dropped, their slots recovered, also after
 * many in a row. */
#include <math.h>

#include "bridge.h"

static void ask(shmb_runner *r, int64_t x, shmb_status expected) {
    int64_t advice = -1;
    shmb_set_i64(r, "x", x);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), expected);
    CHECK(advice == (expected ? -1 : x + 1));
}

static void no_time(shmb_runner *r, double seconds) {
    int64_t advice;
    shmb_set_i64(r, "x", 1);
    shmb_set_deadline(r, seconds);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "deadline"));
}

static void what_is_no_time_is_refused_once(struct server *s) {
    server_run(s);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(s->bridge.name, NULL, &r), SHMB_OK);
    no_time(r, -1);
    no_time(r, -1e-9);
    no_time(r, NAN);
    no_time(r, -INFINITY);
    ask(r, 1, SHMB_OK);
    shmb_set_deadline(r, INFINITY); /* no end */
    ask(r, 1, SHMB_OK);
    shmb_close(r);
    server_halt(s);
}

int main(void) {
    struct server s;
    bridge_open(&s.bridge, "deadline", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&s.bridge, "deadline=0.01");
    for (int round = 0; round < 5; round++) {
        /* two are sent, the third finds no slot */
        for (int i = 0; i < 3; i++) ask(r, i, SHMB_TIMEOUT);
        CHECK(strstr(shmb_error_message(r), "0.01"));
        shmb_set_deadline(r, 0);
        /* this time the late replies are there before the next request is filled */
        if (round % 2) {
            bridge_answer(&s.bridge, bridge_receive(&s.bridge));
            bridge_answer(&s.bridge, bridge_receive(&s.bridge));
        }
        server_run(&s);
        for (int i = 0; i < 50; i++) ask(r, 1000 * round + i, SHMB_OK);
        server_halt(&s);
        shmb_set_deadline(r, 0.01);
    }
    shmb_close(r);
    what_is_no_time_is_refused_once(&s);
    bridge_close(&s.bridge);
    return 0;
}
