/* Replies to questions that are not open, or that have been answered, are dropped, and change
 * nothing for those that are. */
#include "bridge.h"
#include "host/host_channel.h"

static struct lane lane;
static uint32_t generation, position;

static void push(struct descriptor d) {
    d.generation = generation;
    d.slot = NO_SLOT;
    ring_push(lane.ring, lane.count, position++, &d);
}

/* What a host that lies sends: a failure that answers `sequence`. */
static void lie(uint64_t sequence) {
    push((struct descriptor){.sequence = sequence, .flags = FAILED | INLINE, .code = SHMB_MODEL});
}

/* An answer of the int64 x, without the slot that a new layout needs: of one that is known. */
static void answer(uint64_t sequence, int64_t x) {
    struct descriptor d = {.sequence = sequence, .flags = INLINE};
    memcpy(d.data, &x, sizeof x);
    push(d);
}

static void expect(shmb_runner *r, shmb_ticket ticket, int64_t expected) {
    int64_t advice;
    CHECK_STATUS(r, shmb_receive_i64(r, ticket, &advice), SHMB_OK);
    CHECK(advice == expected);
}

int main(void) {
    struct bridge b;
    shmb_ticket t[2];
    bridge_open(&b, "nobody", small_plan, SHMB_WAIT_DEFAULT);
    struct segment raw = bridge_segment(&b);
    shmb_runner *r = bridge_connect(&b, "deadline=5");
    int64_t key = bridge_ask_x(&b, r, 1, SHMB_INT64);
    bridge_answer(&b, key); /* layout 0 is one int64 */
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    lane = shmb_segment_lane(&raw, key_channel(key), REPLY);
    generation = (uint32_t)(shmb_host_claim(b.host, key_channel(key)));
    position = 1;
    for (int i = 0; i < 2; i++) {
        t[i] = send_x(r, i);
    }
    answer((uint64_t)t[1], 20); /* out of order */
    lie((uint64_t)t[1]);        /* twice: the first counts; it fits the ring until it is taken */
    shmb_set_deadline(r, 0.02);
    shmb_ticket late = send_x(r, 3); /* takes both, and finds no slot */
    shmb_set_deadline(r, 0);
    CHECK_STATUS(r, shmb_receive(r, late), SHMB_TIMEOUT);
    const uint64_t nobody[] = {0,
                               1,
                               2,
                               (uint64_t)t[1],
                               (uint64_t)late,
                               UINT64_MAX,
                               (uint64_t)1 << 48,
                               (uint64_t)t[0] + 1,
                               (uint64_t)t[0] ^ (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        lie(nobody[i]);
        shmb_set_i64(r, "x", 4);
        CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK); /* waits for a slot */
        CHECK(shmb_runner_continue(r) == -1);                       /* takes the lie */
        shmb_runner_abandon(r, SHMB_INTERRUPTED);
    }
    expect(r, t[1], 20);
    answer((uint64_t)t[0], 10);
    lie((uint64_t)t[0]);
    expect(r, t[0], 10);
    CHECK_STATUS(r, shmb_receive(r, t[0]), SHMB_INVALID);
    shmb_close(r);
    shmb_segment_detach(&raw);
    bridge_close(&b);
}
