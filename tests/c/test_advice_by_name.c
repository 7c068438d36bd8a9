/* Advice of several fields is read by name or index; what is not there is a MISMATCH that lists
 * what is. NULL for a result, or no advice at all, is INVALID. */
#include "bridge.h"
#include "shmbridge/environment.h"

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CHECK_STATUS(r, call, SHMB_INVALID);                                                       \
        CHECK(strstr(shmb_error_message(r), "NULL"));                                              \
    } while (0)

static void no_result(void) {
    struct server server;
    shmb_runner *r;
    int64_t number;
    server_start(&server, "null", SHMB_WAIT_DEFAULT);
    CHECK(shmb_open(server.bridge.name, NULL, NULL) == SHMB_INVALID);
    r = runner_open(server.bridge.name);
    CHECK_FAILS(r, shmb_advice_i64(r, "advice", &number), SHMB_INVALID,
                "no question has been asked");
    shmb_set_i64(r, "x", 1);
    REFUSED(shmb_evaluate_i64(r, NULL));
    CHECK_FAILS(r, shmb_advice_i64(r, "advice", &number), SHMB_INVALID,
                "the last question got no advice");
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &number), SHMB_OK);
    REFUSED(shmb_advice_at(r, 0, NULL));
    REFUSED(shmb_advice(r, "advice", NULL));
    REFUSED(shmb_advice_f32(r, "advice", NULL));
    REFUSED(shmb_advice_string(r, "advice", NULL, &number));
    REFUSED(shmb_advice_string(r, "advice", &(const char *){NULL}, NULL));
    REFUSED(shmb_expected_at(r, NULL, 0, NULL));
    shmb_runner_stats(r, NULL);
    CHECK_STATUS(r, shmb_advice_i64(r, "advice", &number), SHMB_OK);
    CHECK(number == 2);
    CHECK(shmb_choose(NULL, SHMB_ARGMAX, NULL, &number, NULL) == SHMB_INVALID);
    CHECK(shmb_choose(&(shmb_tensor){0}, SHMB_ARGMAX, NULL, NULL, NULL) == SHMB_INVALID);
    shmb_close(r);
    server_stop(&server);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "advice", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    shmb_tensor t;
    CHECK(shmb_advice_count(r) == 0);
    for (int i = 0; i < 3; i++) {
        shmb_set_i64(r, "x", i);
        int64_t key = bridge_ask(&b, r, SHMB_ANY), *offsets;
        CHECK(shmb_host_reply_begin(b.host, key) == SHMB_OK);
        *(int64_t *)shmb_host_reply_add(b.host, key, "decision", SHMB_INT64, SHMB_TENSOR, 0, NULL,
                                        NULL) = i;
        float *p = shmb_host_reply_add(b.host, key, "probabilities", SHMB_FLOAT32, SHMB_TENSOR, 1,
                                       &(int64_t){2}, NULL);
        p[0] = 0.25f, p[1] = 0.75f;
        char *text = shmb_host_reply_add(b.host, key, "reasons", SHMB_UINT8, SHMB_STRINGS, 1,
                                         (const int64_t[]){2, 5}, &offsets);
        memcpy(text, "hotbig", 5);
        offsets[0] = 0, offsets[1] = 3, offsets[2] = 5;
        CHECK(shmb_host_reply_send(b.host, key, false) == SHMB_OK);
        CHECK_STATUS(r, bridge_result(r), SHMB_OK);
        CHECK(shmb_advice_count(r) == 3);
        CHECK_STATUS(r, shmb_advice(r, "probabilities", &t), SHMB_OK);
        CHECK(t.dtype == SHMB_FLOAT32 && t.size == 2 && ((const float *)t.data)[1] == 0.75f);
        CHECK_STATUS(r, shmb_advice_at(r, 0, &t), SHMB_OK);
        CHECK(strcmp(t.name, "decision") == 0 && *(const int64_t *)t.data == i);
        CHECK_STATUS(r, shmb_advice(r, "reasons", &t), SHMB_OK);
        CHECK(t.offsets[1] == 3 && memcmp((const char *)t.data + 3, "bi", 2) == 0);
        CHECK_FAILS(r, shmb_advice(r, "reason", &t), SHMB_MISMATCH,
                    "decision, probabilities, reasons");
        CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_MISMATCH); /* not the only one */
        CHECK_STATUS(r, shmb_advice_at(r, 3, &t), SHMB_INVALID);
        CHECK_STATUS(r, shmb_advice_at(r, -1, &t), SHMB_INVALID);
    }
    shmb_close(r);
    bridge_close(&b);
    no_result();
    return 0;
}
