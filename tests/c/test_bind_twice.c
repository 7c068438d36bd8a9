/* Binding the same feature again gives the same address, another shape or a late bind is refused for good. */
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
    CHECK(shmb_bind(r, "late", SHMB_INT64, 0, NULL));
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    shmb_close(r);

    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(shmb_bind(r, "x", SHMB_INT64, 0,
                    NULL)); /* private memory: after an evaluate it is too late */
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "bind before"));
    shmb_close(r);
    server_stop(&server);
    return 0;
}
