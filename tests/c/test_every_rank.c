/* Ranks 0 to 8 arrive with their dims, both ways; ranks -1 and 9 are an error. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "ranks", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    const int64_t dims[SHMB_MAX_RANK] = {2, 1, 3, 1, 2, 1, 1, 3};
    for (int32_t rank = 0; rank <= SHMB_MAX_RANK; rank++) {
        int64_t size = 1;
        for (int i = 0; i < rank; i++) size *= dims[i];
        int32_t *x = shmb_feature(r, "echo", SHMB_INT32, rank, rank ? dims : NULL);
        for (int64_t i = 0; i < size; i++) x[i] = (int32_t)(100 * rank + i);
        shmb_tensor t;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
        CHECK(t.rank == rank && t.size == size &&
              memcmp(t.dims, dims, (size_t)rank * sizeof *dims) == 0);
        for (int64_t i = 0; i < size; i++) CHECK(((const int32_t *)t.data)[i] == 100 * rank + i);
    }
    const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    shmb_feature(r, "x", SHMB_INT32, 9, nine);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature(r, "x", SHMB_INT32, -1, nine);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature(r, "x", SHMB_INT32, 1, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
