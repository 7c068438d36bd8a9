/* The host gives scalar advice as the dtype asked for where that is exact; else both sides get an
 * error. */
#include "bridge.h"
#include "message/convert.h"

static struct bridge b;
static shmb_runner *r;

/* Asks for dtype; the host replies with an integer or (is_float) a double. */
static void ask(shmb_dtype want, bool is_float, double value, shmb_status expected) {
    shmb_tensor t;
    shmb_set_i64(r, "x", 0);
    int64_t key = bridge_ask(&b, r, want);
    CHECK(shmb_host_message(b.host, key)->want == want);
    shmb_status replied = is_float ? shmb_host_reply_f64(b.host, key, false, value)
                                   : shmb_host_reply_i64(b.host, key, false, (int64_t)value);
    CHECK_STATUS(r, replied, expected);
    CHECK_STATUS(r, bridge_result(r), expected);
    if (expected) {
        CHECK(strstr(shmb_error_message(r), "not exactly") &&
              strstr(shmb_host_error(b.host, key), "not exactly"));
        return;
    }
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
    CHECK(t.size == 1 &&
          (want == SHMB_ANY ? t.dtype == (is_float ? SHMB_FLOAT64 : SHMB_INT64) : t.dtype == want));
    uint8_t bytes[8];
    CHECK(shmb_convert_f64(value, t.dtype, bytes) &&
          memcmp(bytes, t.data, shmb_dtype_size(t.dtype)) == 0);
}

int main(void) {
    bridge_open(&b, "wanted", small_plan, SHMB_WAIT_DEFAULT);
    r = bridge_connect(&b, "");
    for (shmb_dtype want = SHMB_ANY; want <= SHMB_BFLOAT16; want++) {
        ask(want, false, 1, SHMB_OK);
        ask(want, true, 0, SHMB_OK);
        bool is_float = want >= SHMB_FLOAT16 || want == SHMB_ANY;
        ask(want, true, 0.5, is_float ? SHMB_OK : SHMB_INEXACT);
    }
    ask(SHMB_UINT8, false, 256, SHMB_INEXACT);
    ask(SHMB_INT8, false, -128, SHMB_OK);
    ask(SHMB_UINT64, false, -1, SHMB_INEXACT);
    ask(SHMB_FLOAT32, true, 0.1, SHMB_INEXACT);
    ask(SHMB_FLOAT16, false, 2049, SHMB_INEXACT);
    ask(SHMB_BFLOAT16, false, 257, SHMB_INEXACT);

    float f;
    double d;
    int32_t i;
    for (int k = 0; k < 2;
         /* a reply of another dtype or size is a MISMATCH, and the runner's variable is untouched
          */
         k++) {
        f = -3;
        shmb_set_i64(r, "echo", 1);
        int64_t key = bridge_ask(&b, r, SHMB_FLOAT32);
        bridge_echo(&b, key, false);
        CHECK_STATUS(r, bridge_result(r), SHMB_MISMATCH);
    }
    bridge_close(&b);
    CHECK_STATUS(r, shmb_evaluate_f32(r, &f), SHMB_CLOSED);
    CHECK(f == -3);
    shmb_close(r);

    struct server server;
    server_start(&server, "scalars", SHMB_WAIT_DEFAULT);
    r = runner_open(server.bridge.name);
    shmb_set_i64(r, "x", 41);
    CHECK_STATUS(r, shmb_evaluate_f64(r, &d), SHMB_OK);
    CHECK(d == 42);
    shmb_set_i64(r, "x", 41);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_ANY, &d), SHMB_INVALID);
    CHECK(d == 42 && strstr(shmb_error_message(r), "0 is not a dtype for advice"));
    shmb_set_f32(r, "x", 0.5f);
    CHECK_STATUS(r, shmb_evaluate_f32(r, &f), SHMB_OK);
    CHECK(f == 1.5f);
    i = 3;
    shmb_set_f32(r, "x", 0.5f);
    CHECK_STATUS(r, shmb_evaluate_i32(r, &i), SHMB_INEXACT);
    shmb_set(r, "echo", SHMB_INT32, 1, &(int64_t){2}, (const int32_t[]){1, 2});
    CHECK_STATUS(r, shmb_evaluate_i32(r, &i), SHMB_MISMATCH);
    shmb_set_i64(r, "echo", 1);
    shmb_set_i64(r, "two", 1);
    CHECK_STATUS(r, shmb_evaluate_i32(r, &i), SHMB_MISMATCH);
    CHECK(i == 3);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
