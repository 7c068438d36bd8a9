/* A registered runner's end is as any other's: HOST_GONE and its like are for good, a late answer
 * is for a while, and a forked child may only read and close. */
#include "kinds.h"

static int questions, returned;

static ANSWERS(evaluate) {
    CHECK(strcmp(state, "x") == 0);
    questions++;
    if (returned == SHMB_TIMEOUT) usleep(20000);
    if (returned) return shmb_sink_fail(advice, (shmb_status)returned, "it is so");
    return advise_i64(advice, questions);
}

static shmb_runner *fresh(void) {
    questions = returned = 0;
    return runner_open("ends://x");
}

static void lasts(shmb_status status, bool for_good) {
    shmb_runner *r = fresh();
    returned = (int)status;
    for (int i = 0; i < 3; i++) {
        CHECK_FAILS(r, shmb_evaluate(r), status, "it is so");
        CHECK(questions == (for_good ? 1 : i + 1));
    }
    returned = SHMB_OK;
    CHECK_STATUS(r, shmb_evaluate(r), for_good ? status : SHMB_OK);
    shmb_close(r);
}

/* For 16 times as long, unless told otherwise. */
static void rests_after_a_late_answer(void) {
    shmb_runner *r = fresh();
    for (int i = 1; i < 3; i++) {
        returned = SHMB_TIMEOUT;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_TIMEOUT);
        returned = SHMB_OK;
        CHECK_FAILS(r, shmb_evaluate(r), SHMB_TIMEOUT, "not asked");
        CHECK(questions == 2 * i - 1);
        if (i == 2) shmb_set_deadline(r, 0);
        else
            while (shmb_evaluate(r) == SHMB_TIMEOUT) usleep(1000);
        CHECK_STATUS(r, i == 2 ? shmb_evaluate(r) : SHMB_OK, SHMB_OK);
        CHECK(questions == 2 * i);
    }
    shmb_close(r);
}

static void inherits(void) {
    shmb_runner *r = fresh();
    int64_t *bound = shmb_bind(r, "x", SHMB_INT64, 0, NULL), advice;
    *bound = 1;
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(shmb_advice_number(r, NULL, SHMB_INT64, &advice) == SHMB_OK && advice == 1);
        for (int i = 0; i < 2; i++) CHECK_STATUS(r, shmb_evaluate(r), SHMB_FORKED);
        CHECK(questions == 1);
        shmb_close(r);
        _exit(0);
    }
    CHECK(process_wait(child) == 0);
    CHECK(evaluated(r) == 2);
    shmb_close(r);
}

int main(void) {
    kind_register("ends", evaluate);
    lasts(SHMB_HOST_GONE, true);
    lasts(SHMB_CLOSED, true);
    lasts(SHMB_CORRUPT, true);
    lasts(SHMB_MODEL, false);
    rests_after_a_late_answer();
    inherits();
}
