/* A deadline that passes is TIMEOUT; late replies are dropped, their slots recovered, also after
 * many in a row. Until a late reply has come, nothing is asked. The host says how long its answers
 * may take. */
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
    CHECK_FAILS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID, "deadline");
}

static void what_is_no_time_is_refused_once(struct server *s) {
    server_run(s);
    shmb_runner *r = runner_open(s->bridge.name);
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

/* Also behind a runner with retries. */
static void asks_no_more_until_the_late_answer_has_come(struct bridge *b) {
    const char *const queries[] = {"deadline=0.05", "deadline=0.05&retries=1"};
    for (int i = 0; i < 2; i++) {
        shmb_runner *r = bridge_connect(b, queries[i]);
        ask(r, 1, SHMB_TIMEOUT);
        int64_t key = bridge_receive(b);
        for (int k = 0; k < 3; k++) {
            ask(r, 2, SHMB_TIMEOUT);
            CHECK(strstr(shmb_error_message(r), "not asked"));
        }
        CHECK(shmb_host_receive(b->host, 0) == -SHMB_TIMEOUT);
        bridge_answer(b, key);
        bridge_answer(b, bridge_ask_x(b, r, 3, SHMB_INT64));
        shmb_close(r);
    }
}

static void waits_on(struct bridge *b, shmb_runner *r) {
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    CHECK(shmb_runner_continue(r) == -1);
    bridge_answer(b, bridge_receive(b));
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
}

/* Of more than the clock can hold, and of less than it counts. */
static void odd_times(struct bridge *b) {
    static const char *const endless[] = {"deadline=99999999999999999999",
                                          "connect_timeout=99999999999999999999",
                                          "deadline=9300000000&connect_timeout=10000000000"};
    for (int i = 0; i < 3; i++) {
        shmb_runner *r = bridge_connect(b, endless[i]);
        for (int k = 0; k < 2; k++) {
            waits_on(b, r);
            shmb_set_deadline(r, 1e300);
        }
        shmb_set_deadline(r, 1e-10);
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_TIMEOUT);
        shmb_close(r);
    }
}

/* The last that is not without end would end before now, if it overflowed. */
static void a_host_may_say_any_deadline(struct bridge *b) {
    struct segment s = bridge_segment(b);
    const uint64_t said[] = {INT64_MAX - 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (int i = 0; i < 8; i++) {
        atomic_store(&shmb_segment_host_line(&s)->deadline, said[i / 2]);
        shmb_runner *r = bridge_connect(b, i % 2 ? "retries=1" : "");
        waits_on(b, r);
        shmb_close(r);
    }
    atomic_store(&shmb_segment_host_line(&s)->deadline, (uint64_t)0);
    shmb_segment_detach(&s);
}

static double deadline_at(struct bridge *b, const char *query) {
    shmb_runner *r = bridge_connect(b, query);
    double seconds = shmb_runner_deadline(r);
    shmb_close(r);
    return seconds;
}

static void the_host_says_how_long_an_answer_may_take(struct bridge *b) {
    CHECK(deadline_at(b, "") == SHMB_DEADLINE);
    shmb_host_set_deadline(b->host, 60);
    CHECK(deadline_at(b, "") == 60 && deadline_at(b, "retries=1") == 60);
    CHECK(deadline_at(b, "deadline=5") == 5 && deadline_at(b, "deadline=inf") == INFINITY);
    shmb_host_set_deadline(b->host, INFINITY);
    CHECK(deadline_at(b, "") == INFINITY && deadline_at(b, "deadline=5") == 5);
    shmb_host_set_deadline(b->host, 0.02);
    shmb_runner *r = bridge_connect(b, "");
    ask(r, 1, SHMB_TIMEOUT);
    CHECK(strstr(shmb_error_message(r), "0.02"));
    shmb_set_deadline(r, 60);
    CHECK(shmb_runner_deadline(r) == 60);
    shmb_set_deadline(r, 0);
    CHECK(shmb_runner_deadline(r) == 0.02);
    shmb_host_close(b->host);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_CLOSED);
    shmb_close(r);
}

int main(void) {
    struct server s;
    bridge_open(&s.bridge, "deadline", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&s.bridge, "deadline=0.01");
    for (int round = 0; round < 5; round++) {
        /* two are sent, the third finds no slot */
        for (int i = 0; i < 3; i++) {
            ask(r, i, SHMB_TIMEOUT);
            CHECK(strstr(shmb_error_message(r), "0.01"));
            shmb_set_deadline(r, 0.01); /* asks again */
        }
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
    asks_no_more_until_the_late_answer_has_come(&s.bridge);
    odd_times(&s.bridge);
    a_host_may_say_any_deadline(&s.bridge);
    the_host_says_how_long_an_answer_may_take(&s.bridge);
    bridge_close(&s.bridge);
}
