/* shmb_interrupt, from another thread or a signal handler, ends a waiting evaluate, or else the
 * next one. */
#include "bridge.h"

static shmb_runner *r;

static void *interrupt_soon(void *unused) {
    usleep(30000);
    shmb_interrupt(r);
    return unused;
}

static void on_alarm(int number) {
    (void)number;
    shmb_interrupt(r);
}

static void wait_policy(struct server *s, const char *query) {
    pthread_t thread;
    r = bridge_connect(&s->bridge, query);
    CHECK(pthread_create(&thread, NULL, interrupt_soon, NULL) == 0);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INTERRUPTED); /* nobody serves */
    pthread_join(thread, NULL);

    signal(SIGALRM, on_alarm);
    ualarm(30000, 0);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INTERRUPTED);

    server_run(s);
    int64_t advice = 0;
    for (int i = 0; i < 10; i++) {
        shmb_interrupt(r);
        shmb_set_i64(r, "x", 5);
        /* also when the advice is quick */
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INTERRUPTED);
        shmb_set_i64(r, "x", 5);
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == 6);
    }
    server_halt(s);
    shmb_close(r);
}

int main(void) {
    struct server s;
    bridge_open(&s.bridge, "interrupt", small_plan, SHMB_WAIT_DEFAULT);
    wait_policy(&s, "wait=block");
    wait_policy(&s, "wait=spin");
    wait_policy(&s, "");
    bridge_close(&s.bridge);
    return 0;
}
