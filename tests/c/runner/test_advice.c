/* Advice: what the host gives is converted to the dtype asked for where that is exact, else both
 * sides get an error; of several fields each is read by name or index, as it is or as a number. */
#include "bridge.h"
#include "message/convert.h"
#include "shmbridge/environment.h"

static struct bridge b;
static shmb_runner *r;

#define REFUSED(call) CHECK_FAILS(r, call, SHMB_INVALID, "NULL")

static void no_result(void) {
    int64_t number;
    CHECK(shmb_open(b.name, NULL, NULL) == SHMB_INVALID);
    CHECK(shmb_advice_count(r) == 0);
    CHECK_FAILS(r, shmb_advice_number(r, "advice", SHMB_INT64, &number), SHMB_INVALID,
                "no question has been asked");
    shmb_set_i64(r, "x", 1);
    REFUSED(shmb_evaluate_i64(r, NULL));
    CHECK_FAILS(r, shmb_advice_number(r, "advice", SHMB_INT64, &number), SHMB_INVALID,
                "the last question got no advice");
    bridge_asked(&b, r, 1);
    REFUSED(shmb_advice_at(r, 0, NULL));
    REFUSED(shmb_advice(r, "advice", NULL));
    REFUSED(shmb_advice_number(r, "advice", SHMB_FLOAT32, NULL));
    REFUSED(shmb_expected_at(r, NULL, 0, NULL));
    shmb_runner_stats(r, NULL);
    CHECK_STATUS(r, shmb_advice_number(r, "advice", SHMB_INT64, &number), SHMB_OK);
    CHECK(number == 2);
    CHECK(shmb_choose(NULL, SHMB_ARGMAX, NULL, &number, NULL) == SHMB_INVALID);
    CHECK(shmb_choose(&(shmb_tensor){0}, SHMB_ARGMAX, NULL, NULL, NULL) == SHMB_INVALID);
    CHECK(shmb_advice_number(NULL, NULL, SHMB_INT64, &number) == SHMB_NO_MEMORY);
}

/* A number of each sort, a text and a vector. */
static const shmb_tensor several[] = {
    {.name = "unroll", .dtype = SHMB_INT32, .size = 1, .data = &(const int32_t){-4}},
    {.name = "score",
     .dtype = SHMB_FLOAT64,
     .rank = 2,
     .size = 1,
     .dims = (const int64_t[]){1, 1},
     .data = &(const double){0.1}},
    {.name = "inline", .dtype = SHMB_BOOL, .size = 1, .data = &(const uint8_t){1}},
    {.name = "big", .dtype = SHMB_INT64, .size = 1, .data = &(const int64_t){INT64_C(1) << 40}},
    {.name = "why",
     .dtype = SHMB_UINT8,
     .kind = SHMB_STRING,
     .rank = 1,
     .size = 3,
     .dims = (const int64_t[]){3},
     .data = "hot"},
    {.name = "two",
     .dtype = SHMB_FLOAT32,
     .rank = 1,
     .size = 2,
     .dims = (const int64_t[]){2},
     .data = (const float[]){0.25f, 0.75f}}};
enum { SEVERAL = sizeof several / sizeof *several };

static void fields(void) {
    shmb_tensor t;
    int64_t key = bridge_ask_x(&b, r, 1, SHMB_ANY);
    CHECK(shmb_host_reply(b.host, key, false, several, SEVERAL) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    CHECK(shmb_advice_count(r) == SEVERAL);
    for (int i = 0; i < SEVERAL; i++) {
        CHECK_STATUS(r, shmb_advice(r, several[i].name, &t), SHMB_OK);
        expect_equal(&t, &several[i]);
        CHECK(shmb_advice_at(r, i, &t) == SHMB_OK && strcmp(t.name, several[i].name) == 0);
    }
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_MISMATCH); /* not the only one */
    CHECK_STATUS(r, shmb_advice_at(r, SEVERAL, &t), SHMB_INVALID);
    int64_t failures = stats(r).failures[SHMB_INVALID];
    CHECK_STATUS(r, shmb_advice_at(r, -1, &t), SHMB_INVALID);
    CHECK(stats(r).failures[SHMB_INVALID] == failures + 1);
}

static void as_numbers(void) {
    int64_t i64 = 7;
    int32_t i32 = 7;
    float f32 = 7;
    double f64 = 7;
    uint8_t u8 = 7;
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_INT64, &i64), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_INT32, &i32), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_FLOAT32, &f32), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_FLOAT64, &f64), SHMB_OK);
    CHECK(i64 == -4 && i32 == -4 && f32 == -4 && f64 == -4);
    CHECK_STATUS(r, shmb_advice_number(r, "score", SHMB_FLOAT64, &f64), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "inline", SHMB_INT64, &i64), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "inline", SHMB_UINT8, &u8), SHMB_OK);
    CHECK(f64 == 0.1 && i64 == 1 && u8 == 1);

    i32 = 7, f32 = 7, u8 = 7; /* untouched by what follows */
    CHECK_FAILS(r, shmb_advice_number(r, "score", SHMB_FLOAT32, &f32), SHMB_INEXACT,
                "\"score\" of float64 is not exactly representable as float32");
    CHECK_STATUS(r, shmb_advice_number(r, "score", SHMB_INT32, &i32), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_number(r, "big", SHMB_INT32, &i32), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_UINT8, &u8), SHMB_INEXACT);
    CHECK_FAILS(r, shmb_advice_number(r, "why", SHMB_INT32, &i32), SHMB_MISMATCH,
                "3 bytes of text");
    CHECK_STATUS(r, shmb_advice_number(r, "two", SHMB_FLOAT32, &f32), SHMB_MISMATCH);
    CHECK_FAILS(r, shmb_advice_number(r, "unrol", SHMB_FLOAT32, &f32), SHMB_MISMATCH,
                "unroll, score, inline, big, why, two");
    CHECK_STATUS(r, shmb_advice_number(r, NULL, SHMB_FLOAT32, &f32), SHMB_MISMATCH);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_ANY, &u8), SHMB_INVALID);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", (shmb_dtype)99, &u8), SHMB_INVALID);
    CHECK(i32 == 7 && f32 == 7 && u8 == 7);
    CHECK(shmb_advice_count(r) == SEVERAL); /* an error of reading leaves the advice */
}

static void a_vector_as_wanted(void) {
    shmb_tensor t, expected = several[SEVERAL - 1];
    expected.dtype = SHMB_FLOAT64;
    expected.data = (const double[]){0.25, 0.75};
    int64_t key = bridge_ask_x(&b, r, 1, SHMB_FLOAT64);
    CHECK(shmb_host_reply(b.host, key, false, &several[SEVERAL - 1], 1) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    CHECK_STATUS(r, shmb_advice(r, "two", &t), SHMB_OK);
    expect_equal(&t, &expected);
    key = bridge_ask_x(&b, r, 1, SHMB_INT64);
    CHECK(shmb_host_reply(b.host, key, false, &several[SEVERAL - 1], 1) == SHMB_INEXACT);
    CHECK_FAILS(r, bridge_result(r), SHMB_INEXACT, "the advice \"two\" of dtype float32 is not");
}

/* Asks for dtype; the host replies with an integer or (is_float) a double. */
static void wanted(shmb_dtype want, bool is_float, double value, shmb_status expected) {
    shmb_tensor t;
    int64_t key = bridge_ask_x(&b, r, 0, want);
    CHECK(shmb_host_message(b.host, key)->want == want);
    shmb_status replied = is_float ? reply_f64(b.host, key, false, value)
                                   : reply_i64(b.host, key, false, (int64_t)value);
    CHECK_STATUS(r, replied, expected);
    CHECK_STATUS(r, bridge_result(r), expected);
    if (expected) {
        CHECK_TEXT(shmb_error_message(r), "not exactly");
        CHECK_TEXT(shmb_host_error(b.host, key), "not exactly");
        return;
    }
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
    CHECK(t.size == 1 &&
          (want == SHMB_ANY ? t.dtype == (is_float ? SHMB_FLOAT64 : SHMB_INT64) : t.dtype == want));
    uint8_t bytes[8];
    CHECK(shmb_convert_f64(value, t.dtype, bytes) &&
          memcmp(bytes, t.data, shmb_dtype_size(t.dtype)) == 0);
}

static void wanted_dtypes(void) {
    for (shmb_dtype want = SHMB_ANY; want <= SHMB_BFLOAT16; want++) {
        wanted(want, false, 1, SHMB_OK);
        wanted(want, true, 0, SHMB_OK);
        bool is_float = want >= SHMB_FLOAT16 || want == SHMB_ANY;
        wanted(want, true, 0.5, is_float ? SHMB_OK : SHMB_INEXACT);
    }
    wanted(SHMB_UINT8, false, 256, SHMB_INEXACT);
    wanted(SHMB_INT8, false, -128, SHMB_OK);
    wanted(SHMB_UINT64, false, -1, SHMB_INEXACT);
    wanted(SHMB_FLOAT32, true, 0.1, SHMB_INEXACT);
    wanted(SHMB_FLOAT16, false, 2049, SHMB_INEXACT);
    wanted(SHMB_BFLOAT16, false, 257, SHMB_INEXACT);
}

/* Through shmb_evaluate_TYPE: the runner's variable is untouched by what fails. */
static void evaluated_as(void) {
    struct server server = {.bridge = b};
    float f32 = -3;
    double f64;
    int32_t i32 = 3;
    server_run(&server);
    shmb_set_i64(r, "x", 41);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT64, &f64), SHMB_OK);
    shmb_set_i64(r, "x", 41);
    CHECK_FAILS(r, shmb_evaluate_number(r, SHMB_ANY, &f64), SHMB_INVALID,
                "0 is not a dtype for advice");
    CHECK(f64 == 42);
    shmb_set(r, "x", SHMB_FLOAT32, 0, NULL, &(float){0.5f});
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_INT32, &i32), SHMB_INEXACT);
    shmb_set(r, "echo", SHMB_INT32, 1, &(int64_t){2}, (const int32_t[]){1, 2});
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_INT32, &i32), SHMB_MISMATCH);
    shmb_set_i64(r, "echo", 1);
    shmb_set_i64(r, "two", 1);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_INT32, &i32), SHMB_MISMATCH);
    for (int k = 0; k < 2; k++) { /* of a new layout, and of a known one */
        shmb_set_string(r, "echo", "text", -1);
        CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &f32), SHMB_MISMATCH);
    }
    CHECK(i32 == 3 && f32 == -3);
    shmb_set(r, "x", SHMB_FLOAT32, 0, NULL, &(float){0.5f});
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &f32), SHMB_OK);
    CHECK(f32 == 1.5f);
    server_stop(&server);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &f32), SHMB_CLOSED);
    CHECK(f32 == 1.5f);
}

int main(void) {
    bridge_open(&b, "advice", small_plan, SHMB_WAIT_DEFAULT);
    r = bridge_connect(&b, "");
    no_result();
    fields();
    as_numbers();
    a_vector_as_wanted();
    wanted_dtypes();
    evaluated_as();
    shmb_close(r);
}
