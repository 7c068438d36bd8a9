/* A runner that could not be opened takes every call, keeps its memory private, and evaluates to
 * the same error. */
#include "bridge.h"

static void use(shmb_runner *r, shmb_status expected) {
    shmb_tensor t;
    int64_t advice = 17;
    for (int i = 0; i < 3; i++) {
        memset(shmb_feature_f32(r, "x", 100000), 1, 400000);
        shmb_set_i64(r, "x", 1);
        shmb_set_string(r, "s", "text", -1);
        shmb_set_strings(r, "t", 1, (const char *const[]){"text"}, NULL);
        memset(shmb_feature_ragged(r, "l", SHMB_INT8, 2, (const int64_t[]){50, 50}, 1, NULL), 1,
               100);
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), expected);
        CHECK(advice == 17 && *shmb_error_message(r));
        CHECK(shmb_advice_count(r) == 0 && shmb_advice(r, "x", &t) == SHMB_INVALID &&
              shmb_advice_at(r, 0, &t) == SHMB_INVALID);
        shmb_discard(r);
        shmb_set_deadline(r, 1);
        shmb_interrupt(r);
    }
    memset(shmb_bind(r, "b", SHMB_INT8, 1, &(int64_t){1000}), 1, 1000);
    CHECK_STATUS(r, shmb_evaluate(r), expected);
    shmb_close(r);
}

/* There was no memory for it. */
static void a_runner_that_is_null(void) {
    int64_t advice = 7;
    shmb_tensor t;
    CHECK(!shmb_feature_f32(NULL, "x", 3) && !shmb_bind(NULL, "x", SHMB_FLOAT32, 0, NULL));
    CHECK(!shmb_feature_ragged(NULL, "x", SHMB_FLOAT32, 1, (int64_t[]){2}, 1, NULL));
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
}

int main(void) {
    shmb_runner *r;
    CHECK_FAILS(r, shmb_open("shm://there-is-none?connect_timeout=0", NULL, &r), SHMB_NO_HOST,
                "there-is-none");
    use(r, SHMB_NO_HOST);
    CHECK_STATUS(r, shmb_open("carrier-pigeon://coop", NULL, &r), SHMB_UNSUPPORTED);
    use(r, SHMB_UNSUPPORTED);
    CHECK_STATUS(r, shmb_open("shm://no/slash", NULL, &r), SHMB_INVALID);
    use(r, SHMB_INVALID);
    a_runner_that_is_null();
}
