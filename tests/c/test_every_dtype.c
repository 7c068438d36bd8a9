/* A tensor of every dtype arrives as it was sent, both ways, 64-byte aligned. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "dtypes", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    uint8_t bytes[8 * 9];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 3);
    for (shmb_dtype dtype = SHMB_BOOL; dtype <= SHMB_BFLOAT16; dtype++) {
        shmb_tensor t;
        void *x = shmb_feature(r, "echo", dtype, 1, &(int64_t){9});
        CHECK((uintptr_t)x % 64 == 0);
        memcpy(x, bytes, 9 * shmb_dtype_size(dtype));
        CHECK_STATUS(r, shmb_evaluate_as(r, dtype), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
        CHECK(t.dtype == dtype && t.kind == SHMB_TENSOR && t.rank == 1 && t.dims[0] == 9 &&
              t.size == 9 && !t.offsets);
        CHECK(memcmp(t.data, bytes, 9 * shmb_dtype_size(dtype)) == 0);
        CHECK(9 * shmb_dtype_size(dtype) <= 32 || (uintptr_t)t.data % 64 == 0);
    }
    shmb_feature(r, "x", (shmb_dtype)14, 1, &(int64_t){1});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "14 is not a dtype"));
    CHECK_STATUS(r, shmb_evaluate_as(r, (shmb_dtype)99), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "99 is not a dtype"));
    shmb_feature(r, "x", SHMB_ANY, 1, &(int64_t){1});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
