/* A registered runner's end is as any other's: HOST_GONE and its like are for good, a late answer
 * is for a while, and a forked child may only read and close. */
#include "bridge.h"
#include "shmbridge/plugin.h"

static int asked, returned;

static shmb_status open_it(void *context, const char *where, const shmb_options *options,
                           void **state, shmb_sink *failure) {
    (void)context, (void)where, (void)options, (void)failure;
    *state = &asked;
    return SHMB_OK;
}

static shmb_status evaluate(void *state, const shmb_tensor *f, int64_t n, shmb_dtype want,
                            double deadline, shmb_sink *advice) {
    (void)f, (void)n, (void)want, (void)deadline;
    CHECK(state == &asked);
    asked++;
    if (returned == SHMB_TIMEOUT) usleep(20000);
    if (returned) return shmb_sink_fail(advice, (shmb_status)returned, "it is so");
    int64_t *to = shmb_sink_field(advice, "advice", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL);
    *to = asked;
    return SHMB_OK;
}

static const shmb_runner_kind kind = {
    .size = sizeof kind, .scheme = "ends", .open = open_it, .evaluate = evaluate};

static void lasts(shmb_status status, bool for_good) {
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open("ends://x", NULL, &r), SHMB_OK);
    asked = 0;
    for (int i = 0; i < 3; i++) {
        returned = (int)status;
        shmb_set_i64(r, "x", i);
        CHECK_STATUS(r, shmb_evaluate(r), status);
        CHECK(strcmp(shmb_error_message(r), "it is so") == 0 && asked == (for_good ? 1 : i + 1));
    }
    returned = SHMB_OK;
    CHECK_STATUS(r, shmb_evaluate(r), for_good ? status : SHMB_OK);
    shmb_close(r);
}

/* For 16 times as long, unless told otherwise. */
static void rests_after_a_late_answer(void) {
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open("ends://x", NULL, &r), SHMB_OK);
    asked = 0;
    for (int i = 1; i < 3; i++) {
        returned = SHMB_TIMEOUT;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_TIMEOUT);
        returned = SHMB_OK;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_TIMEOUT);
        CHECK(strstr(shmb_error_message(r), "not asked") && asked == 2 * i - 1);
        if (i == 2) shmb_set_deadline(r, 0);
        else
            while (shmb_evaluate(r) == SHMB_TIMEOUT) usleep(1000);
        CHECK_STATUS(r, i == 2 ? shmb_evaluate(r) : SHMB_OK, SHMB_OK);
        CHECK(asked == 2 * i);
    }
    shmb_close(r);
}

static void inherits(void) {
    shmb_runner *r;
    shmb_tensor t;
    int64_t advice;
    CHECK_STATUS(r, shmb_open("ends://x", NULL, &r), SHMB_OK);
    int64_t *bound = shmb_bind(r, "x", SHMB_INT64, 0, NULL);
    *bound = 1;
    asked = 0;
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(shmb_advice(r, NULL, &t) == SHMB_OK && *(const int64_t *)t.data == 1);
        for (int i = 0; i < 2; i++) CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_FORKED);
        CHECK(asked == 1);
        shmb_close(r);
        _exit(0);
    }
    CHECK(process_wait(child) == 0);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 2);
    shmb_close(r);
}

int main(void) {
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    lasts(SHMB_HOST_GONE, true);
    lasts(SHMB_CLOSED, true);
    lasts(SHMB_CORRUPT, true);
    lasts(SHMB_MODEL, false);
    rests_after_a_late_answer();
    inherits();
    return 0;
}
