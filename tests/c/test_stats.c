/* A runner counts questions, failures by status, retries, defaults, and the time of waits that
 * reached a clock. */
#include "bridge.h"

static int64_t failures(const shmb_stats *s) {
    int64_t sum = 0;
    for (int i = 0; i < SHMB_STATUSES; i++) sum += s->failures[i];
    return sum;
}

static char said[1024];
static int lines;

static void log_line(void *context, const char *line) {
    CHECK(context == said);
    snprintf(said, sizeof said, "%s", line);
    lines++;
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
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT64), SHMB_OK);
    shmb_feature_u8(r, "x", 1)[0] = 1;
    CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT64), SHMB_MODEL);
    shmb_set_deadline(r, 0.02);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_TIMEOUT);
    shmb_set_deadline(r, 0);
    shmb_set_i64(r, "x", 1);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
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

static void without_one(void) {
    shmb_runner *r;
    shmb_options o = {
        .size = sizeof o, .default_advice = "3", .log = log_line, .log_context = said};
    CHECK_STATUS(r, shmb_open("shm://nobody-here?retries=2&backoff=0.001", &o, &r), SHMB_OK);
    CHECK(!lines);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    shmb_stats s = stats(r);
    CHECK(s.questions == 2 && s.defaulted == 2 && s.failures[SHMB_NO_HOST] == 2 &&
          failures(&s) == 2);
    CHECK(lines == 1 && strstr(said, "shmbridge: shm://nobody-here: ") == said &&
          !strchr(said, '\n'));
    CHECK(strstr(said, "continuing with the default advice 3 (counted; reported once)"));
    shmb_close(r);
}

/* A host that goes: its runner asks anew, and waits between. */
static void with_retries(void) {
    struct bridge b;
    bridge_open(&b, "retries", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "retries=2&backoff=0.002");
    shmb_host_close(b.host);
    shmb_set_i64(r, "x", 1);
    CHECK(shmb_evaluate(r) != SHMB_OK);
    shmb_stats s = stats(r);
    CHECK(s.questions == 1 && failures(&s) == 1 && s.retries == 2 && s.waited >= 0.002);
    shmb_close(r);
    bridge_close(&b);
}

int main(void) {
    with_a_host();
    without_one();
    with_retries();
    shmb_stats s = stats(NULL);
    CHECK(s.size == sizeof s && s.questions == 0 && failures(&s) == 0);
    return 0;
}
