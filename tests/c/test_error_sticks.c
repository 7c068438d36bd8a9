/* The first error of filling sticks until evaluate returns it; until then all memory is private,
 * and writing is safe. */
#include "bridge.h"

int main(void) {
    struct server server;
    server_start(&server, "sticks", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    shmb_set_i64(r, "x", 1);
    memset(shmb_feature_u8(r, "large", 70000), 1, 70000); /* TOO_LARGE */
    memset(shmb_feature_u8(r, "", 3000), 1, 3000);        /* INVALID, but later */
    memset(shmb_feature_f64(r, "fine", 1000), 1, 8000);
    int64_t *offsets_and_values =
        shmb_feature_ragged(r, "list", SHMB_INT64, 3, (const int64_t[]){1, 2, 3}, 1, NULL);
    for (int i = 0; i < 6; i++) offsets_and_values[i] = i;
    shmb_set_strings(r, "texts", 2, (const char *const[]){"a", "b"}, NULL);
    shmb_set_string(r, "text", "c", -1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE);
    CHECK(strstr(shmb_error_message(r), "\"large\""));
    CHECK(shmb_advice_count(r) == 0);

    int64_t advice = -5;
    shmb_set_i64(r, "x", 1); /* and now the error is gone */
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 2);

    shmb_set_i64(r, "", 1);
    shmb_discard(r);
    shmb_set_i64(r, "x", 2);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 3);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
