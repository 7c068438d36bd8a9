/* Whatever a request holds comes back from a host as it was sent: every dtype and rank, with
 * elements and without. */
#include "bridge.h"

static struct server server;
static shmb_runner *r;
static _Alignas(64) uint8_t bytes[4096];

/* The advice of that name is this, in memory that is aligned. */
static void expect(const char *name, shmb_tensor sent) {
    shmb_tensor t;
    CHECK_STATUS(r, shmb_advice(r, name, &t), SHMB_OK);
    expect_equal(&sent, &t);
    CHECK((size_t)t.size * shmb_dtype_size(t.dtype) <= 32 || (uintptr_t)t.data % 64 == 0);
}

static int64_t product(int32_t rank, const int64_t *dims) {
    int64_t size = 1;
    for (int i = 0; i < rank; i++) size *= dims[i];
    return size;
}

static void every_dtype_of_every_rank(void) {
    const int64_t dims[SHMB_MAX_RANK] = {2, 1, 3, 1, 2, 1, 1, 3};
    for (shmb_dtype dtype = SHMB_BOOL; dtype <= SHMB_BFLOAT16; dtype++)
        for (int32_t rank = 0; rank <= SHMB_MAX_RANK; rank++) {
            int64_t size = product(rank, dims);
            void *x = shmb_feature(r, "echo", dtype, rank, rank ? dims : NULL);
            CHECK((uintptr_t)x % 64 == 0);
            memcpy(x, bytes, (size_t)size * shmb_dtype_size(dtype));
            CHECK_STATUS(r, shmb_evaluate_as(r, dtype), SHMB_OK);
            expect("echo",
                   (shmb_tensor){
                       .dtype = dtype, .rank = rank, .size = size, .dims = dims, .data = bytes});
        }
}

/* Dims beside a zero count for what they would make without it. */
static void empty_tensors(void) {
    const int64_t large[] = {1 << 20, 0, 1 << 17}, none = 0;
    CHECK(shmb_feature_f32(r, "echo", 0) && shmb_feature(r, "large", SHMB_FLOAT64, 3, large));
    shmb_set(r, "no data", SHMB_INT16, 1, &none, NULL);
    shmb_set_i64(r, "last", 77);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    expect("echo", (shmb_tensor){.dtype = SHMB_FLOAT32, .rank = 1, .dims = &none});
    expect("large", (shmb_tensor){.dtype = SHMB_FLOAT64, .rank = 3, .dims = large});
    expect("no data", (shmb_tensor){.dtype = SHMB_INT16, .rank = 1, .dims = &none});
    expect("last", (shmb_tensor){.dtype = SHMB_INT64, .size = 1, .data = &(int64_t){77}});
    CHECK(evaluated(r) == 0); /* no features at all */
}

int main(void) {
    server_start(&server, "values", SHMB_WAIT_DEFAULT);
    r = runner_open(server.bridge.name);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 3);
    every_dtype_of_every_rank();
    for (int i = 0; i < 3; i++) empty_tensors();
    for (int i = 0; i < 20000; i++) {
        CHECK(asked(r, i) == i + 1);
        float advice;
        *shmb_feature_f32(r, "features", 300) = (float)i;
        CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &advice), SHMB_OK);
        CHECK(advice == (float)i + 1);
    }
    shmb_close(r);
    server_stop(&server);
}
