/* A runner's features reach the host, and its advice comes back, whatever the dtype asked for. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "round-trip", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    for (int i = 0; i < 20000; i++) {
        int64_t advice;
        float as_float;
        shmb_set_i64(r, "x", i);
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == i + 1);
        float *x = shmb_feature_f32(r, "features", 300);
        x[0] = (float)i;
        CHECK_STATUS(r, shmb_evaluate_f32(r, &as_float), SHMB_OK);
        CHECK(as_float == (float)i + 1);
    }
    shmb_close(r);
    server_stop(&server);
    return 0;
}
