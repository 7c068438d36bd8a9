/* A dtype that does not exist is the caller's mistake: the host never hears of it, and the runner
 * goes on. A deadline too short to count is one all the same. */
#include "bridge.h"

int main(void) {
    static const int dtypes[] = {14, 99, 255, 256, -1};
    struct server s;
    char url[96];
    shmb_runner *r;
    int64_t advice;
    server_start(&s, "unknown-dtype", SHMB_WAIT_BLOCK);
    snprintf(url, sizeof url, "shm://%s", s.bridge.name);
    CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        shmb_set_i64(r, "x", 4);
        CHECK_STATUS(r, shmb_evaluate_as(r, (shmb_dtype)dtypes[i]), SHMB_INVALID);
        shmb_set_i64(r, "x", 4);
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == 5);
    }
    server_halt(&s);
    shmb_set_deadline(r, 1e-10);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TIMEOUT);
    shmb_close(r);
    bridge_close(&s.bridge);
    return 0;
}
