/* A registered runner that waits is ended by shmb_interrupt, and the next evaluate is not. */
#include "kinds.h"

static bool waits;

static ANSWERS(evaluate) {
    CHECK(!shmb_sink_interrupted(advice));
    if (!waits) return advise_i64(advice, 7);
    for (int i = 0; i < 20000 && !shmb_sink_interrupted(advice); i++) usleep(1000);
    CHECK(shmb_sink_interrupted(advice)); /* stays so during the call */
    return shmb_sink_fail(advice, SHMB_INTERRUPTED, "it was asked to");
}

int main(void) {
    kind_register("waits", evaluate);
    for (int i = 0; i < 4; i++) {
        shmb_runner *r = runner_open(i < 2 ? "waits://x?retries=2" : "waits://x");
        waits = true;
        CHECK_FAILS(r, evaluate_interrupted(r, i % 2), SHMB_INTERRUPTED, "it was asked to");
        waits = false;
        CHECK(evaluated(r) == 7);
        shmb_close(r);
    }
}
