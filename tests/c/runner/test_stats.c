/* A runner counts questions, failures by status, retries, defaults, and the time of waits that
 * reached a clock. */
#include "bridge.h"

static int64_t failures(const shmb_stats *s) {
    int64_t sum = 0;
    for (int i = 0; i < SHMB_STATUSES; i++) sum += s->failures[i];
    return sum;
}

/* A message that succeeds, one that the model fails, one that nobody answers, one that is filled
 * wrongly. */
static void with_a_host(void) {
    struct bridge b;
    int64_t advice;
    bridge_open(&b, "stats", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    shmb_stats s = stats(r);
    CHECK(s.size == sizeof s && s.questions == 0 && failures(&s) == 0 && s.waited == 0);
    bridge_asked(&b, r, 1);
    feature_u8(r, "x", 1)[0] = 1;
    CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT64), SHMB_MODEL);
    shmb_set_deadline(r, 0.02);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_TIMEOUT);
    shmb_set_deadline(r, 0);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, evaluate_x(r, 1), SHMB_INVALID);
    s = stats(r);
    CHECK(s.questions == 4 && failures(&s) == 3 && s.failures[SHMB_MODEL] == 1 &&
          s.failures[SHMB_TIMEOUT] == 1 && s.failures[SHMB_INVALID] == 1);
    CHECK(s.waited >= 0.019 && s.retries == 0 && s.defaulted == 0);
    struct {
        size_t size;
        int64_t questions, behind;
    } older = {16, 0, 7}; /* a program that was built when there was less to count */
    shmb_runner_stats(r, (shmb_stats *)(void *)&older);
    CHECK(older.size == 16 && older.questions == 4 && older.behind == 7);
    shmb_close(r);
    bridge_close(&b);
}

/* A host that goes: its runner asks anew, and waits between. */
static void with_retries(void) {
    struct bridge b;
    bridge_open(&b, "retries", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "retries=2&backoff=0.002");
    shmb_host_close(b.host);
    CHECK(evaluate_x(r, 1) != SHMB_OK);
    shmb_stats s = stats(r);
    CHECK(s.questions == 1 && failures(&s) == 1 && s.retries == 2 && s.waited >= 0.002);
    shmb_close(r);
    bridge_close(&b);
}

int main(void) {
    with_a_host();
    with_retries();
    shmb_stats s = stats(NULL);
    CHECK(s.size == sizeof s && s.questions == 0 && failures(&s) == 0);
}
