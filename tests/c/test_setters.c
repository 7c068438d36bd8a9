/* Scalars of the usual C types, and ragged lists by copying, arrive as they were set. */
#include "bridge.h"

static const void *scalar(shmb_runner *r, const char *name, shmb_dtype dtype) {
    static shmb_tensor t;
    CHECK_STATUS(r, shmb_advice(r, name, &t), SHMB_OK);
    CHECK(t.kind == SHMB_TENSOR && t.rank == 0 && t.size == 1 && t.dtype == dtype);
    return t.data;
}

int main(void) {
    struct server server;
    server_start(&server, "setters", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    float cells[] = {1, 2, 3, 4, 5, 6};
    shmb_set_bool(r, "echo", 256); /* true, though its low byte is 0 */
    shmb_set_bool(r, "no", 0);
    shmb_set_i32(r, "i32", INT32_MIN);
    shmb_set_u64(r, "u64", UINT64_MAX);
    shmb_set_ragged(r, "rows", SHMB_FLOAT32, 3, (const int64_t[]){2, 0, 1}, 2, (const int64_t[]){2},
                    cells);
    shmb_set_ragged(r, "numbers", SHMB_FLOAT32, 2, (const int64_t[]){1, 5}, 1, NULL, cells);
    shmb_set_ragged(r, "none", SHMB_FLOAT32, 0, NULL, 1, NULL, NULL);
    cells[0] = 9; /* it was copied */
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK(*(const uint8_t *)scalar(r, "echo", SHMB_BOOL) == 1 &&
          *(const uint8_t *)scalar(r, "no", SHMB_BOOL) == 0);
    CHECK(*(const int32_t *)scalar(r, "i32", SHMB_INT32) == INT32_MIN);
    CHECK(*(const uint64_t *)scalar(r, "u64", SHMB_UINT64) == UINT64_MAX);
    shmb_tensor t;
    CHECK_STATUS(r, shmb_advice(r, "rows", &t), SHMB_OK);
    CHECK(t.kind == SHMB_RAGGED && t.rank == 2 && t.dims[0] == 3 && t.dims[1] == 3 &&
          t.dims[2] == 2);
    CHECK(t.offsets[1] == 2 && t.offsets[2] == 2 && t.offsets[3] == 3);
    for (int i = 0; i < 6; i++) CHECK(((const float *)t.data)[i] == (float)(i + 1));
    CHECK_STATUS(r, shmb_advice(r, "numbers", &t), SHMB_OK);
    CHECK(t.size == 6 && t.offsets[1] == 1 && ((const float *)t.data)[5] == 6);
    CHECK_STATUS(r, shmb_advice(r, "none", &t), SHMB_OK);
    CHECK(t.kind == SHMB_RAGGED && t.dims[0] == 0 && t.size == 0);

    shmb_set_ragged(r, "x", SHMB_INT8, 1, (const int64_t[]){2}, 1, NULL, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "\"x\": expected data, found NULL"));
    shmb_set_ragged(r, "x", SHMB_INT8, 2, (const int64_t[]){1, -1}, 1, NULL, "ab");
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set_ragged(NULL, "x", SHMB_INT8, 1, (const int64_t[]){1}, 1, NULL, "a");
    shmb_set_bool(NULL, "x", 1);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
