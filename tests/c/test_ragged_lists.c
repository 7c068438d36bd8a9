/* Ragged lists arrive row for row, both ways: rows of numbers, and rows of vectors and matrices. */
#include "bridge.h"

static void round_trip(shmb_runner *r, int64_t rows, const int64_t *lengths, int32_t rank,
                       const int64_t *dims) {
    int64_t total = 0, each = 1;
    for (int64_t i = 0; i < rows; i++) total += lengths[i];
    for (int i = 0; i + 1 < rank; i++) each *= dims[i];
    double *x = shmb_feature_ragged(r, "echo", SHMB_FLOAT64, rows, lengths, rank, dims);
    for (int64_t i = 0; i < total * each; i++) x[i] = (double)i / 3;
    shmb_set_f32(r, "behind it", 0.5f);
    shmb_tensor t;
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
    CHECK(t.kind == SHMB_RAGGED && t.rank == rank && t.dims[0] == rows && t.dims[1] == total &&
          t.size == total * each);
    CHECK((uintptr_t)t.data % 64 == 0);
    for (int i = 0; i + 1 < rank; i++) CHECK(t.dims[i + 2] == dims[i]);
    for (int64_t i = 0; i < rows; i++) CHECK(t.offsets[i + 1] - t.offsets[i] == lengths[i]);
    for (int64_t i = 0; i < t.size; i++) CHECK(((const double *)t.data)[i] == (double)i / 3);
    CHECK_STATUS(r, shmb_advice(r, "behind it", &t), SHMB_OK);
    CHECK(*(const float *)t.data == 0.5f);
}

int main(void) {
    struct server server;
    server_start(&server, "ragged", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    int64_t lengths[40];
    for (int i = 0; i < 40; i++) lengths[i] = i * 5 % 7;
    for (int rows = 0; rows <= 40; rows++) round_trip(r, rows, lengths, 1, NULL);
    for (int rows = 0; rows <= 5; rows++) {
        round_trip(r, rows, lengths, 2, (const int64_t[]){3});
        round_trip(r, rows, lengths, 3, (const int64_t[]){2, 2});
        round_trip(r, rows, lengths, 8, (const int64_t[]){1, 1, 2, 1, 1, 1, 1});
    }
    shmb_feature_ragged(r, "x", SHMB_INT8, 2, (const int64_t[]){1, -1}, 1, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature_ragged(r, "x", SHMB_INT8, 2, (const int64_t[]){INT64_MAX, 1}, 1, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature_ragged(r, "x", SHMB_INT8, 1, lengths, 0, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_feature_ragged(r, "x", SHMB_INT8, 1, lengths, 2, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
