/* A runner for which there was no memory is NULL, and every call answers it. */
#include "bridge.h"

int main(void) {
    int64_t advice = 7;
    shmb_tensor t;
    CHECK(!shmb_feature_f32(NULL, "x", 3));
    CHECK(!shmb_feature_ragged(NULL, "x", SHMB_FLOAT32, 1, (int64_t[]){2}, 1, NULL));
    CHECK(!shmb_bind(NULL, "x", SHMB_FLOAT32, 0, NULL));
    shmb_set_i64(NULL, "x", 1);
    shmb_set_string(NULL, "x", "text", -1);
    shmb_set_strings(NULL, "x", 1, (const char *[]){"text"}, NULL);
    shmb_discard(NULL);
    shmb_set_deadline(NULL, 1);
    shmb_interrupt(NULL);
    CHECK(shmb_evaluate(NULL) == SHMB_NO_MEMORY);
    CHECK(shmb_evaluate_i64(NULL, &advice) == SHMB_NO_MEMORY && advice == 7);
    CHECK(shmb_advice_count(NULL) == 0 && shmb_advice(NULL, "x", &t) == SHMB_NO_MEMORY);
    CHECK(*shmb_error_message(NULL));
    shmb_close(NULL);
    return 0;
}
