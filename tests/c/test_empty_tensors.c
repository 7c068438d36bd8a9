/* Tensors, strings and lists without elements arrive, with their dims, both ways; so does a request
 * without features. Dims beside a zero count for what they would make without it. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "empty", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    for (int i = 0; i < 3; i++) {
        shmb_tensor t;
        CHECK(shmb_feature_f32(r, "echo", 0));
        CHECK(shmb_feature(r, "large but empty", SHMB_FLOAT64, 3,
                           (const int64_t[]){1 << 20, 0, 1 << 17}));
        /* as an empty vector has none */
        shmb_set(r, "no data", SHMB_INT16, 1, &(int64_t){0}, NULL);
        shmb_set_string(r, "string", "", -1);
        shmb_set_strings(r, "no strings", 0, NULL, NULL);
        shmb_set_strings(r, "empty strings", 3, (const char *const[]){"", "", ""}, NULL);
        CHECK(shmb_feature_ragged(r, "no rows", SHMB_INT8, 0, NULL, 1, NULL));
        CHECK(shmb_feature_ragged(r, "empty rows", SHMB_INT8, 2, (const int64_t[]){0, 0}, 2,
                                  (const int64_t[]){4}));
        shmb_set_i64(r, "last", 77);
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(shmb_advice_count(r) == 9);
        CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
        CHECK(t.size == 0 && t.dims[0] == 0);
        CHECK_STATUS(r, shmb_advice(r, "large but empty", &t), SHMB_OK);
        CHECK(t.size == 0 && t.rank == 3 && t.dims[0] == 1 << 20 && t.dims[1] == 0);
        CHECK_STATUS(r, shmb_advice(r, "string", &t), SHMB_OK);
        CHECK(t.kind == SHMB_STRING && t.size == 0);
        CHECK_STATUS(r, shmb_advice(r, "no strings", &t), SHMB_OK);
        CHECK(t.kind == SHMB_STRINGS && t.dims[0] == 0 && t.offsets[0] == 0);
        CHECK_STATUS(r, shmb_advice(r, "empty strings", &t), SHMB_OK);
        CHECK(t.dims[0] == 3 && t.dims[1] == 0 && t.offsets[3] == 0);
        CHECK_STATUS(r, shmb_advice(r, "no rows", &t), SHMB_OK);
        CHECK(t.kind == SHMB_RAGGED && t.dims[0] == 0 && t.offsets[0] == 0);
        CHECK_STATUS(r, shmb_advice(r, "empty rows", &t), SHMB_OK);
        CHECK(t.dims[0] == 2 && t.dims[1] == 0 && t.dims[2] == 4 && t.rank == 2);
        CHECK_STATUS(r, shmb_advice(r, "last", &t), SHMB_OK);
        CHECK(*(const int64_t *)t.data == 77);
        int64_t advice = -1;
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK); /* no features at all */
        CHECK(advice == 0);
    }
    /* More than a library of arrays may count to. */
    CHECK(shmb_feature(r, "huge", SHMB_FLOAT64, 3, (const int64_t[]){1 << 20, 0, (1 << 17) + 1}));
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK(shmb_feature(r, "huge", SHMB_INT8, 3, (const int64_t[]){INT64_MAX, 0, INT64_MAX}));
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
