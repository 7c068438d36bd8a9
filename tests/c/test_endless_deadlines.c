/* A deadline or connect timeout of more than the clock can hold means: none. */
#include "bridge.h"

int main(void) {
    struct bridge b;
    bridge_open(&b, "endless", small_plan, SHMB_WAIT_DEFAULT);
    const char *const queries[] = {"deadline=99999999999999999999",
                                   "connect_timeout=99999999999999999999",
                                   "deadline=9300000000&connect_timeout=10000000000"};
    for (int i = 0; i < 3; i++) {
        shmb_runner *r = bridge_connect(&b, queries[i]);
        shmb_set_i64(r, "x", 1);
        for (int k = 0; k < 2; k++) {
            CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
            CHECK(shmb_runner_continue(r) == -1); /* waits on */
            bridge_answer(&b, bridge_receive(&b));
            CHECK_STATUS(r, bridge_result(r), SHMB_OK);
            shmb_set_deadline(r, 1e300);
            shmb_set_i64(r, "x", 1);
        }
        shmb_close(r);
    }
    bridge_close(&b);
    return 0;
}
