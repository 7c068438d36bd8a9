/* What does not fit its slot is TOO_LARGE, in bytes or in names, and the runner stays usable; what
 * just fits, fits. */
#include "bridge.h"

static void expect_alive(shmb_runner *r) {
    int64_t advice;
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 2);
}

int main(void) {
    struct server server;
    server_start(&server, "large", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    int64_t most = (int64_t)small_plan.request_bytes;

    memset(shmb_feature_u8(r, "x", most), 1, (size_t)most);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_MODEL); /* it arrived: the model does not like uint8 */
    expect_alive(r);
    memset(shmb_feature_u8(r, "x", most + 1), 1, (size_t)most + 1); /* private memory */
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE);
    expect_alive(r);
    shmb_feature_u8(r, "x", most - 63);
    shmb_set_i64(r, "y", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE);
    expect_alive(r);

    memset(shmb_feature_u8(r, "echo", 4097), 1, 4097); /* the advice does not fit */
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE);
    expect_alive(r);

    char name[5000]; /* a header of more than a slot has room for */
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    shmb_set_i64(r, name, 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE);
    expect_alive(r);

    shmb_feature(r, "x", SHMB_INT64, 2, (const int64_t[]){INT64_MAX / 2, 3});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature(r, "x", SHMB_INT64, 1, (const int64_t[]){-1});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    expect_alive(r);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
