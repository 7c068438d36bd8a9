/* A registered runner that waits is ended by shmb_interrupt, from a thread and from a signal
 * handler, and the next evaluate is not. */
#include "bridge.h"
#include "shmbridge/plugin.h"

static shmb_runner *r;
static bool waits;

static shmb_status open_it(void *context, const char *where, const shmb_options *options,
                           void **state, shmb_sink *failure) {
    (void)context, (void)where, (void)options, (void)state;
    CHECK(!shmb_sink_interrupted(failure));
    return SHMB_OK;
}

static shmb_status evaluate(void *state, const shmb_tensor *f, int64_t n, shmb_dtype want,
                            double deadline, shmb_sink *advice) {
    (void)state, (void)f, (void)n, (void)want, (void)deadline;
    CHECK(!shmb_sink_interrupted(advice));
    if (waits) {
        for (int i = 0; i < 20000 && !shmb_sink_interrupted(advice); i++) usleep(1000);
        CHECK(shmb_sink_interrupted(advice)); /* stays so during the call */
        return shmb_sink_fail(advice, SHMB_INTERRUPTED, "it was asked to");
    }
    *(int64_t *)shmb_sink_field(advice, "advice", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL) = 7;
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

static void ended(void) {
    int64_t advice = 0;
    waits = true;
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INTERRUPTED);
    CHECK(strcmp(shmb_error_message(r), "it was asked to") == 0);
    waits = false;
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    CHECK(advice == 7);
}

int main(void) {
    static const shmb_runner_kind kind = {
        .size = sizeof kind, .scheme = "waits", .open = open_it, .evaluate = evaluate};
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    for (int retries = 0; retries < 2; retries++) {
        CHECK_STATUS(r, shmb_open(retries ? "waits://x?retries=2" : "waits://x", NULL, &r),
                     SHMB_OK);
        signal(SIGALRM, on_alarm);
        ualarm(30000, 0);
        ended();
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, interrupt_soon, NULL) == 0);
        ended();
        pthread_join(thread, NULL);
        shmb_close(r);
    }
    return 0;
}
