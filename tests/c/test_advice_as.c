/* Advice read by name as a number is converted as evaluate does: exactly, or INEXACT; text, other
 * sizes and other names are MISMATCH. */
#include "bridge.h"

static struct bridge b;

/* Advice of a number of each sort, a text and a vector. */
static shmb_runner *advised(void) {
    shmb_runner *r = bridge_connect(&b, "");
    shmb_set_i64(r, "x", 1);
    int64_t key = bridge_ask(&b, r, SHMB_ANY);
    CHECK(shmb_host_reply_begin(b.host, key) == SHMB_OK);
    *(int32_t *)shmb_host_reply_add(b.host, key, "unroll", SHMB_INT32, SHMB_TENSOR, 0, NULL, NULL) =
        -4;
    *(double *)shmb_host_reply_add(b.host, key, "score", SHMB_FLOAT64, SHMB_TENSOR, 2,
                                   (const int64_t[]){1, 1}, NULL) = 0.1;
    *(uint8_t *)shmb_host_reply_add(b.host, key, "inline", SHMB_BOOL, SHMB_TENSOR, 0, NULL, NULL) =
        1;
    *(int64_t *)shmb_host_reply_add(b.host, key, "big", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL) =
        INT64_C(1) << 40;
    memcpy(shmb_host_reply_add(b.host, key, "why", SHMB_UINT8, SHMB_STRING, 1, (const int64_t[]){3},
                               NULL),
           "hot", 3);
    shmb_host_reply_add(b.host, key, "two", SHMB_FLOAT32, SHMB_TENSOR, 1, (const int64_t[]){2},
                        NULL);
    CHECK(shmb_host_reply_send(b.host, key, false) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    return r;
}

int main(void) {
    bridge_open(&b, "advice-as", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = advised();
    int64_t i64 = 7, bytes = 7;
    int32_t i32 = 7;
    float f32 = 7;
    double f64 = 7;
    uint8_t u8 = 7;
    const char *text = NULL;
    CHECK_STATUS(r, shmb_advice_i64(r, "unroll", &i64), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_i32(r, "unroll", &i32), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_f32(r, "unroll", &f32), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_f64(r, "unroll", &f64), SHMB_OK);
    CHECK(i64 == -4 && i32 == -4 && f32 == -4 && f64 == -4);
    CHECK_STATUS(r, shmb_advice_f64(r, "score", &f64), SHMB_OK);
    CHECK(f64 == 0.1);
    CHECK_STATUS(r, shmb_advice_i64(r, "inline", &i64), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "inline", SHMB_UINT8, &u8), SHMB_OK);
    CHECK(i64 == 1 && u8 == 1);
    CHECK_STATUS(r, shmb_advice_string(r, "why", &text, &bytes), SHMB_OK);
    CHECK(bytes == 3 && memcmp(text, "hot", 3) == 0);

    i32 = 7, f32 = 7, u8 = 7; /* untouched by what follows */
    CHECK_FAILS(r, shmb_advice_f32(r, "score", &f32), SHMB_INEXACT,
                "\"score\" of float64 is not exactly representable as float32");
    CHECK_STATUS(r, shmb_advice_i32(r, "score", &i32), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_i32(r, "big", &i32), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_UINT8, &u8), SHMB_INEXACT);
    CHECK_FAILS(r, shmb_advice_i32(r, "why", &i32), SHMB_MISMATCH, "3 bytes of text");
    CHECK_STATUS(r, shmb_advice_f32(r, "two", &f32), SHMB_MISMATCH);
    CHECK_FAILS(r, shmb_advice_f32(r, "unrol", &f32), SHMB_MISMATCH,
                "unroll, score, inline, big, why, two");
    CHECK_STATUS(r, shmb_advice_f32(r, NULL, &f32), SHMB_MISMATCH);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", SHMB_ANY, &u8), SHMB_INVALID);
    CHECK_STATUS(r, shmb_advice_number(r, "unroll", (shmb_dtype)99, &u8), SHMB_INVALID);
    CHECK_STATUS(r, shmb_advice_string(r, "unroll", &text, &bytes), SHMB_MISMATCH);
    CHECK(i32 == 7 && f32 == 7 && u8 == 7 && bytes == 3);
    CHECK(shmb_advice_count(r) == 6); /* an error of reading leaves the advice */
    CHECK(shmb_advice_i64(NULL, NULL, &i64) == SHMB_NO_MEMORY &&
          shmb_advice_string(NULL, NULL, &text, &bytes) == SHMB_NO_MEMORY);
    shmb_close(r);

    /* the default advice as well: float32 gets the nearest, and what else reads it finds it as it
     * was */
    shmb_tensor t;
    shmb_options o = {.size = sizeof o, .default_advice = "0.1"};
    CHECK_STATUS(r, shmb_open("shm://nobody-here", &o, &r), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_f32(r, "advice", &f32), SHMB_OK);
    CHECK(f32 == 0.1f);
    CHECK_STATUS(r, shmb_advice_i32(r, NULL, &i32), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_f64(r, NULL, &f64), SHMB_OK);
    CHECK(f64 == 0.1 && shmb_advice(r, NULL, &t) == SHMB_OK && t.dtype == SHMB_FLOAT64);
    shmb_close(r);
    bridge_close(&b);
    return 0;
}
