/* While a runner pauses before a retry: an interrupt ends the evaluate, the next one tries at once;
 * a forked child may only close; and relays and others who go step by step are not kept waiting. */
#include "bridge.h"
#include "runner/runner.h"
#include "shmbridge/plugin.h"

static shmb_runner *r;
static _Atomic int opens;

static shmb_status open_one(void *context, const char *where, const shmb_options *options,
                            void **state, shmb_sink *failure) {
    (void)context, (void)where, (void)options, (void)state, (void)failure;
    opens++;
    return SHMB_OK;
}

/* Each connection answers but once. */
static shmb_status evaluate_one(void *state, const shmb_tensor *features, int64_t count,
                                shmb_dtype want, double deadline, shmb_sink *advice) {
    static int last;
    (void)state, (void)features, (void)count, (void)want, (void)deadline;
    if (last == opens) return shmb_sink_fail(advice, SHMB_HOST_GONE, "gone again");
    last = opens;
    *(int64_t *)shmb_sink_field(advice, "advice", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL) = last;
    return SHMB_OK;
}

static void on_alarm(int number) {
    (void)number;
    shmb_interrupt(r);
}

static void *interrupt_soon(void *unused) {
    usleep(30000);
    shmb_interrupt(r);
    return unused;
}

int main(void) {
    static const shmb_runner_kind kind = {
        .size = sizeof kind, .scheme = "once", .open = open_one, .evaluate = evaluate_one};
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    CHECK_STATUS(
        r, shmb_open("once://?retries=3&backoff=1000&deadline=inf&default_advice=-1", NULL, &r),
        SHMB_OK);
    int64_t advice = 0;
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 1);

    signal(SIGALRM, on_alarm);
    ualarm(30000, 0);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INTERRUPTED); /* no default instead of it */
    CHECK(opens == 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 2);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, interrupt_soon, NULL) == 0);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INTERRUPTED);
    pthread_join(thread, NULL);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 3);

    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    for (int i = 0; i < 100; i++) CHECK(shmb_runner_wait(r, 0) == PENDING); /* looks once */
    pid_t child = fork();
    if (child == 0) {
        int status = (int)shmb_runner_continue(r) == SHMB_FORKED &&
                             shmb_evaluate(r) == SHMB_FORKED && stats(r).defaulted == 0
                         ? 0
                         : 1;
        shmb_close(r);
        _exit(status);
    }
    CHECK(process_wait(child) == 0);
    shmb_runner_abandon(r, SHMB_INTERRUPTED);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 4 && stats(r).defaulted == 0);

    shmb_set_deadline(r, 100); /* no pause outlasts it, so that there is none */
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == -1 && stats(r).defaulted == 1 && opens == 4);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK); /* answered when it began */
    CHECK_STATUS(r, shmb_runner_continue(r), SHMB_OK);
    CHECK(stats(r).defaulted == 2 && shmb_advice_count(r) == 1);
    shmb_close(r);
    return 0;
}
