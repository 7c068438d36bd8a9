/* While a runner pauses before a retry: an interrupt ends the evaluate, the next one tries at once;
 * a forked child may only close; and relays and others who go step by step are not kept waiting. */
#include "kinds.h"
#include "runner/runner.h"

static _Atomic int opens;

static OPENS(open_one) {
    opens++;
    return SHMB_OK;
}

/* Each connection answers but once. */
static ANSWERS(evaluate_one) {
    static int last;
    if (last == opens) return shmb_sink_fail(advice, SHMB_HOST_GONE, "gone again");
    return advise_i64(advice, last = opens);
}

static void the_child(shmb_runner *r) {
    CHECK_STATUS(r, shmb_runner_continue(r), SHMB_FORKED);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_FORKED);
    CHECK(stats(r).defaulted == 0);
    shmb_close(r);
    _exit(0);
}

int main(void) {
    static const shmb_runner_kind kind = {
        .size = sizeof kind, .scheme = "once", .open = open_one, .evaluate = evaluate_one};
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    shmb_runner *r = runner_open("once://?retries=3&backoff=1000&deadline=inf&default_advice=-1");
    CHECK(evaluated(r) == 1);
    for (int i = 1; i < 3; i++) { /* no default instead of it */
        CHECK_STATUS(r, evaluate_interrupted(r, i % 2), SHMB_INTERRUPTED);
        CHECK(opens == i && evaluated(r) == i + 1);
    }
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    for (int i = 0; i < 100; i++) CHECK(shmb_runner_wait(r, 0) == PENDING); /* looks once */
    pid_t child = fork();
    if (child == 0) the_child(r);
    CHECK(process_wait(child) == 0);
    shmb_runner_abandon(r, SHMB_INTERRUPTED);
    CHECK(evaluated(r) == 4 && stats(r).defaulted == 0);

    shmb_set_deadline(r, 100); /* no pause outlasts it, so that there is none */
    CHECK(evaluated(r) == -1 && stats(r).defaulted == 1 && opens == 4);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK); /* answered when it began */
    CHECK_STATUS(r, shmb_runner_continue(r), SHMB_OK);
    CHECK(stats(r).defaulted == 2 && shmb_advice_count(r) == 1);
    shmb_close(r);
}
