/* A host that dies is HOST_GONE for good, whatever was under way; no SIGPIPE reaches the process.
 */
#include "pipes.h"

static int signals;
static void count(int number) { signals++; }

static void expect_gone(shmb_runner *r) {
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(r, shmb_evaluate(r), SHMB_HOST_GONE, "/p\"");
    }
    shmb_close(r);
}

static void idle(struct pipes *p) {
    shmb_runner *r = pipes_meet(p);
    pipes_hang_up(p);
    pipes_fill(r, "x");
    expect_gone(r);
}

static void while_asking(struct pipes *p) {
    shmb_runner *r = pipes_meet(p);
    pipes_start(r, "x");
    pipes_hang_up(p);
    CHECK_STATUS(r, pipes_result(r), SHMB_HOST_GONE);
    expect_gone(r);
}

/* What came before the end counts; a part of a reply does not. */
static void with_a_reply(struct pipes *p, size_t bytes) {
    shmb_runner *r = pipes_meet(p);
    pipes_start(r, "x");
    struct {
        uint64_t length;
        char text[8];
    } reply = {6, "advice"};
    pipes_write(p, &reply, bytes);
    pipes_hang_up(p);
    CHECK_STATUS(r, pipes_result(r), bytes == 14 ? SHMB_OK : SHMB_HOST_GONE);
    if (bytes == 14) pipes_expect(r, "advice");
    pipes_fill(r, "y");
    expect_gone(r);
}

static void half_written(struct pipes *p) {
    shmb_runner *r = pipes_meet(p);
    memset(feature_u8(r, "x", 1 << 20), 1, 1 << 20);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
    pipes_hang_up(p);
    CHECK_STATUS(r, pipes_result(r), SHMB_HOST_GONE);
    expect_gone(r);
}

/* A SIGPIPE of someone else's that is pending stays so. */
static void others_signals(struct pipes *p) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    idle(p);
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK(signals == 1);
}

int main(void) {
    struct pipes p;
    struct sigaction before = {.sa_handler = count}, after;
    sigaction(SIGPIPE, &before, NULL);
    pipes_make(&p, "");
    idle(&p);
    while_asking(&p);
    for (size_t bytes = 1; bytes <= 14; bytes++) with_a_reply(&p, bytes);
    half_written(&p);
    CHECK(signals == 0);
    others_signals(&p);
    CHECK(sigaction(SIGPIPE, NULL, &after) == 0 && after.sa_handler == count);
    pipes_remove(&p);
}
