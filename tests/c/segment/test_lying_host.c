/* A host whose replies lie gives its runner CORRUPT with the reason, for good, and nothing worse.
 */
#include "bridge.h"
#include "host/host_channel.h"

static struct bridge b;
static struct segment raw;

/* Answers a runner's second request with d. */
static void expect(struct descriptor d, const char *why) {
    shmb_runner *r = bridge_connect(&b, "");
    const int64_t five[5] = {0}, dim = 5;
    shmb_set(r, "echo", SHMB_INT64, 1, &dim, five);
    int64_t key = bridge_ask(&b, r, SHMB_ANY);
    uint32_t channel = key_channel(key);
    bridge_answer(&b, key); /* layout 0 is five int64, too many to be inline */
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    key = bridge_ask_x(&b, r, 1, SHMB_ANY);
    if (!d.generation) d.generation = segment_generation(&raw, channel);
    struct lane lane = shmb_segment_lane(&raw, channel, REPLY);
    memset(lane_meta(&lane, 1), 0xff, 300);
    ring_push(lane.ring, lane.count, 1, &d);
    shmb_status status = bridge_result(r);
    if (status == SHMB_OK) fprintf(stderr, "not found: %s\n", why);
    CHECK_FAILS(r, status, SHMB_CORRUPT, why);
    CHECK(shmb_advice_count(r) == 0);
    CHECK_STATUS(r, evaluate_x(r, 1), SHMB_CORRUPT);
    reply_i64(b.host, key, false, 1); /* the slot is the next runner's */
    shmb_close(r);
}

#pragma GCC diagnostic ignored "-Woverride-init"
#define LIE(why, ...)                                                                              \
    expect((struct descriptor){.sequence = 2, .slot = 1, .returns = 1, __VA_ARGS__}, (why))

int main(void) {
    bridge_open(&b, "lying-host", small_plan, SHMB_WAIT_DEFAULT);
    raw = bridge_segment(&b);
    LIE("another claim", .generation = 99999);
    LIE("unknown flags", .flags = 64);
    LIE("slot that does not exist", .slot = 2);
    LIE("either in a slot or inline", .slot = NO_SLOT);
    LIE("either in a slot or inline", .flags = INLINE);
    LIE("too long to be inline", .flags = INLINE, .slot = NO_SLOT);
    LIE("never introduced", .layout = 9);
    LIE("layout id does not exist", .layout = 300);
    LIE("text is longer", .flags = FAILED | INLINE, .slot = NO_SLOT, .text = 33,
        .code = SHMB_MODEL);
    LIE("text is longer", .flags = FAILED, .text = 5000, .code = SHMB_MODEL);
    LIE("status that does not exist", .flags = FAILED | INLINE, .slot = NO_SLOT, .code = 22);
    LIE("returned slots", .returns = 2);
    LIE("returned slots", .returns = 0x80000000);
    LIE("header is longer", .flags = NEW, .data = {0, 0, 1, 0});
    LIE("", .flags = NEW, .data = {100, 0, 0, 0});
    shmb_segment_detach(&raw);
    bridge_close(&b);
}
