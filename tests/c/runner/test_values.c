/* Whatever a request holds comes back from a host as it was sent: every dtype and rank, strings and
 * lists, with elements and without. */
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

/* Rows of vectors or matrices, dims behind the number of values; and what lies behind the list. */
static void list(int64_t rows, const int64_t *lengths, int32_t rank, const int64_t *dims) {
    int64_t all[1 + SHMB_MAX_RANK] = {rows}, offsets[64] = {0};
    for (int64_t i = 0; i < rows; i++) offsets[i + 1] = offsets[i] + lengths[i];
    all[1] = offsets[rows];
    for (int i = 1; i < rank; i++) all[i + 1] = dims[i - 1];
    int64_t size = product(rank, all + 1);
    shmb_set_ragged(r, "echo", SHMB_FLOAT64, rows, lengths, rank, dims, bytes);
    memcpy(shmb_feature_ragged(r, "in place", SHMB_INT8, rows, lengths, rank, dims), bytes,
           (size_t)size);
    shmb_set(r, "behind it", SHMB_FLOAT32, 0, NULL, &(float){0.5f});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    shmb_tensor t = {.dtype = SHMB_FLOAT64,
                     .kind = SHMB_RAGGED,
                     .rank = rank,
                     .size = size,
                     .dims = all,
                     .offsets = offsets,
                     .data = bytes};
    expect("echo", t);
    t.dtype = SHMB_INT8;
    expect("in place", t);
    expect("behind it", (shmb_tensor){.dtype = SHMB_FLOAT32, .size = 1, .data = &(float){0.5f}});
}

static void lists_of_rows(void) {
    int64_t lengths[40];
    for (int i = 0; i < 40; i++) lengths[i] = i * 5 % 7;
    list(0, NULL, 1, NULL);
    list(2, (const int64_t[]){0, 0}, 2, (const int64_t[]){4});
    for (int rows = 0; rows <= 40; rows++) list(rows, lengths, 1, NULL);
    for (int rows = 0; rows <= 5; rows++) {
        list(rows, lengths, 2, (const int64_t[]){3});
        list(rows, lengths, 3, (const int64_t[]){2, 2});
        list(rows, lengths, 8, (const int64_t[]){1, 1, 2, 1, 1, 1, 1});
    }
}

static shmb_tensor text(const char *data, const int64_t *size) {
    return (shmb_tensor){.dtype = SHMB_UINT8,
                         .kind = SHMB_STRING,
                         .rank = 1,
                         .size = *size,
                         .dims = size,
                         .data = data};
}

static shmb_tensor texts(const char *data, const int64_t *count_and_size, const int64_t *offsets) {
    shmb_tensor t = text(data, count_and_size + 1);
    t.kind = SHMB_STRINGS;
    t.dims = count_and_size;
    t.offsets = offsets;
    return t;
}

static void strings(int64_t length) {
    char all[600];
    memset(all, 'a' + (int)length % 26, sizeof all);
    memcpy(all, "one", 3);
    shmb_set_string(r, "echo", all, length);
    shmb_set_string(r, "to the zero", "gr\xc3\xbc\xc3\x9f", -1);
    shmb_set_string(r, "empty", NULL, 0);
    shmb_set_strings(r, "texts", 3, (const char *const[]){"one", NULL, all + 3},
                     (const int64_t[]){3, 0, length});
    shmb_set_strings(r, "zeros", 2, (const char *const[]){"a\0b", "\0"}, (const int64_t[]){3, 1});
    shmb_set_strings(r, "to zeros", 2, (const char *const[]){"", "bc"}, NULL);
    shmb_set_strings(r, "none", 0, NULL, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    expect("echo", text(all, &length));
    expect("to the zero", text("gr\xc3\xbc\xc3\x9f", &(int64_t){6}));
    expect("empty", text("", &(int64_t){0}));
    expect("texts", texts(all, (int64_t[]){3, 3 + length}, (const int64_t[]){0, 3, 3, 3 + length}));
    expect("zeros", texts("a\0b\0", (int64_t[]){2, 4}, (const int64_t[]){0, 3, 4}));
    expect("to zeros", texts("bc", (int64_t[]){2, 2}, (const int64_t[]){0, 0, 2}));
    expect("none", texts("", (int64_t[]){0, 0}, (const int64_t[]){0}));
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
    lists_of_rows();
    for (int i = 0; i < 100; i++) strings(5 * i + 1);
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
    return 0;
}
