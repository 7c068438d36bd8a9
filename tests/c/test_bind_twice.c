/* Binding the same feature again gives the same address. A late bind is an error of that call
 * alone; one that fails in time lasts, since its feature would be missing. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "bind-twice", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    int64_t advice;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    int64_t *x = shmb_bind(r, "x", SHMB_INT64, 1, (int64_t[]){1});
    float *y = shmb_bind(r, "y", SHMB_FLOAT32, 2, (int64_t[]){3, 5});
    CHECK(shmb_bind(r, "x", SHMB_INT64, 1, (int64_t[]){1}) == x);
    CHECK(shmb_bind(r, "y", SHMB_FLOAT32, 2, (int64_t[]){3, 5}) == y);
    for (*x = 1; *x < 5; ++*x) {
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == *x + 1);
    }
    CHECK(shmb_bind(r, "x", SHMB_INT64, 1, (int64_t[]){1}) == x); /* also later on */
    for (int i = 0; i < 3; i++) {
        *(int64_t *)shmb_bind(r, "late", SHMB_INT64, 0, NULL) = 7;
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), "bind before"));
        *x = 10 + i;
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK); /* what was bound is as it was */
        CHECK(advice == *x + 1);
    }
    memset(shmb_bind(r, "x", SHMB_FLOAT32, 1, (int64_t[]){100}), 0, 400); /* another shape, late */
    shmb_discard(r);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    shmb_close(r);

    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    /* private memory: after an evaluate it is too late */
    CHECK(shmb_bind(r, "x", SHMB_INT64, 0, NULL));
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "bind before"));
    shmb_set_i64(r, "x", 2);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 3);
    shmb_set_i64(r, "x", 3);
    CHECK(shmb_bind(r, "y", SHMB_INT64, 0, NULL)); /* behind a feature that was filled */
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    shmb_set_i64(r, "x", 4);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 5);
    shmb_close(r);

    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    CHECK(shmb_bind(r, "x", SHMB_INT64, 0, NULL) && shmb_bind(r, "y", SHMB_INT64, -1, NULL));
    for (int i = 0; i < 2; i++) CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
