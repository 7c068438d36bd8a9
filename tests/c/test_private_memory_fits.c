/* Whatever is wrong with a feature, the memory that filling it returns holds what its caller will
 * write. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "private", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    int64_t lengths[100], dims[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
    for (int i = 0; i < 100; i++) lengths[i] = 3;

    memset(shmb_feature_ragged(r, "rank 0", SHMB_FLOAT32, 100, lengths, 0, NULL), 1,
           300 * sizeof(float));
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    memset(shmb_feature(r, "rank 9", SHMB_FLOAT64, 9, dims), 1, 512 * sizeof(double));
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    memset(shmb_feature(r, "no dtype", (shmb_dtype)99, 9, dims), 1, 512);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set(r, "NULL", SHMB_FLOAT32, 1, (int64_t[]){4}, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set_string(r, "NULL", NULL, -1);
    shmb_discard(r);

    int64_t advice;
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
