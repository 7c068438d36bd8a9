/* shmb_interrupt, from another thread or a signal handler, ends a waiting evaluate, or else the
 * next one. */
#include "bridge.h"

static void wait_policy(struct server *s, const char *query) {
    shmb_runner *r = bridge_connect(&s->bridge, query);
    for (int by_signal = 0; by_signal < 2; by_signal++) { /* nobody serves */
        shmb_set_i64(r, "x", 1);
        CHECK_STATUS(r, evaluate_interrupted(r, by_signal), SHMB_INTERRUPTED);
    }
    server_run(s);
    for (int i = 0; i < 10; i++) { /* also when the advice is quick */
        shmb_interrupt(r);
        CHECK_STATUS(r, evaluate_x(r, 5), SHMB_INTERRUPTED);
        CHECK(asked(r, 5) == 6);
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
}
