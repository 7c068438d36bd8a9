/* A host that sends late replies without end holds evaluate neither beyond its deadline nor from an
 * interrupt. */
#include <sys/time.h>

#include "bridge.h"

enum { SLOTS = 32, EVERY_US = 50, MOST = 100000 };

static struct lane lane;
static struct descriptor late = {
    .sequence = 1, .slot = NO_SLOT, .flags = FAILED | INLINE, .code = SHMB_MODEL};
static volatile uint64_t sent;

/* One more reply to an old question: in the runner's own thread, so the ring is never full. */
static void on_alarm(int signal) {
    if (sent == MOST) return;
    ring_push(lane.ring, SLOTS, sent++, &late);
    if (interrupted && sent == 100) shmb_interrupt(interrupted);
}

static void flood_every(suseconds_t us) {
    struct itimerval each = {.it_interval.tv_usec = us, .it_value.tv_usec = us};
    CHECK(setitimer(ITIMER_REAL, &each, NULL) == 0);
}

static void evaluate_in_a_flood(struct bridge *b, const struct segment *raw, bool interrupts,
                                shmb_status expected) {
    shmb_runner *r = bridge_connect(b, "wait=spin&deadline=1us");
    CHECK_STATUS(r, evaluate_x(r, 1), SHMB_TIMEOUT); /* question 1 */
    shmb_set_deadline(r, interrupts ? 0 : 0.05);
    interrupted = interrupts ? r : NULL;
    lane = shmb_segment_lane(raw, 0, REPLY);
    late.generation = segment_generation(raw, 0);
    sent = 0;
    shmb_set_i64(r, "x", 1);
    flood_every(EVERY_US);
    CHECK_STATUS(r, shmb_evaluate(r), expected);
    flood_every(0);
    CHECK(sent < MOST); /* it did not wait for the end of that */
    shmb_close(r);
}

int main(void) {
#ifdef THREAD_SANITIZER
    return 0; /* it holds a signal back until a system call, and a thread that spins makes none */
#endif
    struct bridge b;
    shmb_plan plan = {.channels = 1,
                      .slots = SLOTS,
                      .header_bytes = 256,
                      .request_bytes = 64,
                      .advice_bytes = 64};
    bridge_open(&b, "flood", plan, SHMB_WAIT_DEFAULT);
    struct segment raw = bridge_segment(&b);
    signal(SIGALRM, on_alarm);
    evaluate_in_a_flood(&b, &raw, false, SHMB_TIMEOUT);
    evaluate_in_a_flood(&b, &raw, true, SHMB_INTERRUPTED);
    shmb_segment_detach(&raw);
    bridge_close(&b);
}
