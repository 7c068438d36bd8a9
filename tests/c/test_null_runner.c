/* A runner for which there was no memory is NULL, and every call answers it. So does every call that
 * gets NULL for its result. */
#include "bridge.h"
#include "shmbridge/environment.h"

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CHECK_STATUS(r, call, SHMB_INVALID);                                                       \
        CHECK(strstr(shmb_error_message(r), "NULL"));                                              \
    } while (0)

static void no_result(void) {
    struct server server;
    shmb_runner *r;
    int64_t number;
    server_start(&server, "null", SHMB_WAIT_DEFAULT);
    CHECK(shmb_open(server.bridge.name, NULL, NULL) == SHMB_INVALID);
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_i64(r, "advice", &number), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "no question has been asked"));
    shmb_set_i64(r, "x", 1);
    REFUSED(shmb_evaluate_i64(r, NULL));
    CHECK_STATUS(r, shmb_advice_i64(r, "advice", &number), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "the last question got no advice"));
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &number), SHMB_OK);
    REFUSED(shmb_advice_at(r, 0, NULL));
    REFUSED(shmb_advice(r, "advice", NULL));
    REFUSED(shmb_advice_f32(r, "advice", NULL));
    REFUSED(shmb_advice_string(r, "advice", NULL, &number));
    REFUSED(shmb_advice_string(r, "advice", &(const char *){NULL}, NULL));
    REFUSED(shmb_expected_at(r, NULL, 0, NULL));
    shmb_runner_stats(r, NULL);
    CHECK_STATUS(r, shmb_advice_i64(r, "advice", &number), SHMB_OK);
    CHECK(number == 2);
    CHECK(shmb_choose(NULL, SHMB_ARGMAX, NULL, &number, NULL) == SHMB_INVALID);
    CHECK(shmb_choose(&(shmb_tensor){0}, SHMB_ARGMAX, NULL, NULL, NULL) == SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
}

int main(void) {
    int64_t advice = 7;
    shmb_tensor t;
    CHECK(!shmb_feature_f32(NULL, "x", 3));
    CHECK(!shmb_feature_ragged(NULL, "x", SHMB_FLOAT32, 1, (int64_t[]){2}, 1, NULL));
    CHECK(!shmb_bind(NULL, "x", SHMB_FLOAT32, 0, NULL));
    shmb_set_i64(NULL, "x", 1);
    shmb_set_string(NULL, "x", "text", -1);
    shmb_set_strings(NULL, "x", 1, (const char *[]){"text"}, NULL);
    shmb_discard(NULL);
    shmb_set_deadline(NULL, 1);
    shmb_interrupt(NULL);
    CHECK(shmb_evaluate(NULL) == SHMB_NO_MEMORY);
    CHECK(shmb_evaluate_i64(NULL, &advice) == SHMB_NO_MEMORY && advice == 7);
    CHECK(shmb_advice_count(NULL) == 0 && shmb_advice(NULL, "x", &t) == SHMB_NO_MEMORY);
    CHECK(*shmb_error_message(NULL));
    shmb_close(NULL);
    no_result();
    return 0;
}
