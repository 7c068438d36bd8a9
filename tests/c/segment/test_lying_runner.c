/* A runner whose descriptors lie poisons its own channel with the reason, and no other; claimed
 * anew it works again. */
#include "bridge.h"
#include "host/host_channel.h"
#include "message/header.h"

static struct bridge b;
static struct segment raw;
static struct lane lane;

struct liar {
    shmb_runner *runner; /* its first message was honest; what follows is written past it */
    uint32_t channel;
    uint64_t sent;
};

static struct liar liar(void) {
    struct liar l = {.runner = bridge_connect(&b, ""), .sent = 1};
    int64_t key = bridge_ask_x(&b, l.runner, 1, SHMB_INT64);
    l.channel = key_channel(key);
    bridge_answer(&b, key);
    CHECK_STATUS(l.runner, bridge_result(l.runner), SHMB_OK);
    lane = shmb_segment_lane(&raw, l.channel, REQUEST);
    return l;
}

/* Sends d past the runner; the request's key. */
static int64_t push(struct liar *l, struct descriptor d) {
    if (!d.generation) d.generation = segment_generation(&raw, l->channel);
    ring_push(lane.ring, lane.count, l->sent++, &d);
    return shmb_host_receive(b.host, 1000000);
}

/* The host has refused a message and says why. */
static void expect_refused(struct liar *l, const char *why) {
    CHECK_FAILS(l->runner, evaluate_x(l->runner, 1), SHMB_CORRUPT, why);
    CHECK_STATUS(l->runner, shmb_evaluate(l->runner), SHMB_CORRUPT); /* for good */
    shmb_close(l->runner);
    *l = liar(); /* the same channel, claimed anew */
}

static void expect(struct liar *l, struct descriptor d, const char *why) {
    CHECK(push(l, d) < 0);
    expect_refused(l, why);
}

/* A header that fits into meta, with as many dims as fit behind it, or more. */
static uint32_t write_long_header(uint8_t *meta, int dims) {
    struct field f[60];
    char names[60];
    for (int i = 0; i < 60; i++) {
        names[i] = (char)('A' + i);
        f[i] = (struct field){
            .name = &names[i], .name_bytes = 1, .dtype = SHMB_INT64, .rank = (dims + i) / 60};
    }
    size_t size = shmb_header_write(f, 60, meta, 4096);
    CHECK(size && dims_at(size) + (size_t)dims * sizeof(int64_t) >= 4096);
    return (uint32_t)size;
}

/* What `inspect` reads of a channel: a label and the last layout. */
static void lie_about_hints(const struct liar *l) {
    int64_t count;
    shmb_segment_info info;
    shmb_channel_info channels[4];
    struct label *label = shmb_segment_label(&raw, l->channel);
    label->bytes = LABEL_BYTES + 1;
    memset(label->text, 'x', sizeof label->text);
    CHECK(shmb_inspect(raw.fd, &info, channels));
    CHECK(strlen(channels[l->channel].label) == LABEL_BYTES);

    shmb_tensor *last = shmb_inspect_layout(raw.fd, l->channel, false, &count);
    CHECK(last && count == 1);
    free(last);
    atomic_fetch_add(&lane.last->version, 1); /* odd: it is being written */
    CHECK(!shmb_inspect_layout(raw.fd, l->channel, false, &count));
    atomic_fetch_add(&lane.last->version, 1);
    uint8_t *meta = (uint8_t *)(lane.last + 1);
    uint32_t header = write_long_header(meta, 60 * SHMB_MAX_RANK);
    uint32_t fit = (4096 - (uint32_t)dims_at(header)) / sizeof(int64_t);
    lane.last->header_bytes = write_long_header(meta, (int)fit);
    lane.last->dims = fit;
    last = shmb_inspect_layout(raw.fd, l->channel, false, &count);
    CHECK(last && count == 60);
    free(last);
    lane.last->dims = fit - 1; /* not the header's */
    CHECK(!shmb_inspect_layout(raw.fd, l->channel, false, &count));
    lane.last->header_bytes = write_long_header(meta, (int)fit + 1);
    lane.last->dims = fit + 1;
    CHECK(!shmb_inspect_layout(raw.fd, l->channel, false, &count));
}

/* Nothing is read behind a segment: it gets the place below one of which nothing can be read. */
static void ask_about_no_channel(void) {
    int64_t count;
    uint8_t *above = NULL, *at = NULL;
    for (int i = 0; i < 1000 && (!above || at + raw.size != above); i++) { /* qemu's go upwards */
        above = at;
        at = mmap(NULL, raw.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    munmap(at, raw.size);
    CHECK(!shmb_inspect_layout(raw.fd, small_plan.channels, false, &count));
}

/* A request in a slot that the host still has; then one that returns no slot for the reply. */
static void keep_slots(struct liar *l) {
    struct descriptor d = {.sequence = 8, .returns = 1}, again = {.sequence = 9};
    int64_t key = push(l, d);
    CHECK(key >= 0);
    expect(l, again, "a slot that was not the sender's");
    reply_i64(b.host, key, false, 1);
    shmb_close(l->runner);
    *l = liar(); /* whose first reply keeps slot 0 */

    const int64_t five[5] = {0}, dim = 5;
    shmb_tensor t = {.name = "a", .dtype = SHMB_INT64, .rank = 1, .size = 5, .dims = &dim};
    t.data = five;
    d.returns = 0;
    CHECK((key = push(l, d)) >= 0 && shmb_host_reply(b.host, key, false, &t, 1) == SHMB_OK);
    CHECK((key = push(l, again)) >= 0);
    CHECK(shmb_host_reply(b.host, key, false, &t, 1) == SHMB_RUNNER_GONE);
    expect_refused(l, "it returned no reply slot");
}

/* The host follows the claim, and the runner notices it. */
static void steal_the_claim(void) {
    shmb_runner *r = bridge_connect(&b, "");
    int64_t key = bridge_ask_x(&b, r, 1, SHMB_ANY);
    struct runner_line *mine = shmb_segment_runner_line(&raw, key_channel(key));
    struct channel_line *line = shmb_segment_channel_line(&raw, key_channel(key));
    uint64_t generation = atomic_load(&mine->claim) >> 8;
    atomic_store(&mine->claim, (generation + 1) << 8 | CLAIMED);
    CHECK_FAILS(r, bridge_result(r), SHMB_CLOSED, "another runner has this channel");
    CHECK(reply_i64(b.host, key, false, 1) == SHMB_OK);
    CHECK(shmb_host_receive(b.host, 1000000) < 0);
    CHECK(atomic_load(&line->ready) >> 8 == generation + 1);
    shmb_close(r);
}

static void lie_about_meta(struct liar *l, struct descriptor d) {
    uint32_t size;
    uint8_t *meta = lane_meta(&lane, 0);
    d.flags = NEW;
    memcpy(d.data, &(uint32_t){5000}, 4);
    expect(l, d, "header is longer");
    memcpy(d.data, &(uint32_t){0xffffffff}, 4);
    expect(l, d, "header is longer");
    memcpy(d.data, &(uint32_t){0}, 4);
    expect(l, d, "");
    size = 200;
    memcpy(d.data, &size, 4);
    memset(meta, 0xff, size);
    expect(l, d, "");
    memcpy(d.data, &(uint32_t){write_long_header(meta, 60 * SHMB_MAX_RANK)}, 4);
    expect(l, d, "its dims are more than a slot has room for");

    struct field f[2] = {
        {.name = "a", .name_bytes = 1, .dtype = SHMB_INT64, .rank = 2},
        {.name = "b", .name_bytes = 1, .dtype = SHMB_UINT8, .kind = SHMB_STRINGS, .rank = 1}};
    size = (uint32_t)shmb_header_write(f, 2, meta, 4096);
    int64_t *dims = (int64_t *)(meta + (size + 7) / 8 * 8);
    const int64_t lies[][4] = {
        {1, 8192, 0, 0}, /* one offset more than the body's 65536 bytes */
        {-1, 1, 0, 0},      {INT64_MAX, INT64_MAX, 0, 0},   {1 << 20, 1 << 20, 0, 0},
        {1, 1, -1, 0},      {1, 1, INT64_MAX, 0},           {1, 1, 0, INT64_MAX},
        {1, 1, 1 << 20, 0}, {(int64_t)1 << 37 | 1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(d.data, &(uint32_t){(uint32_t)shmb_header_write(f, 2, meta, 4096)}, 4);
        memcpy(dims, lies[i], sizeof lies[i]);
        expect(l, d, "its dims");
    }
    const int64_t offsets[][3] = {{1, 2, 3}, {0, 2, 4}, {0, 4, 3}, {0, -1, 3}, {0, INT64_MIN, 3}};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        memcpy(d.data, &(uint32_t){(uint32_t)shmb_header_write(f, 2, meta, 4096)}, 4);
        memcpy(dims, (const int64_t[]){1, 1, 2, 3}, 32);
        memcpy(lane_body(&lane, 0) + 64, offsets[i], sizeof offsets[i]);
        expect(l, d, "offsets decrease");
    }
}

int main(void) {
    bridge_open(&b, "liar", small_plan, SHMB_WAIT_DEFAULT);
    raw = bridge_segment(&b);
    shmb_runner *honest = bridge_connect(&b, "");
    struct liar l = liar();

#define LIE(why, ...)                                                                              \
    do {                                                                                           \
        struct descriptor d = {.sequence = 2, .slot = 0, .returns = 1, __VA_ARGS__};               \
        expect(&l, d, (why));                                                                      \
        bridge_asked(&b, honest, 1);                                                               \
    } while (0)
#pragma GCC diagnostic ignored "-Woverride-init"
    LIE("another claim", .generation = 77);
    LIE("unknown flags", .flags = 32);
    LIE("slot that does not exist", .slot = 2);
    LIE("slot that does not exist", .slot = 254);
    LIE("either in a slot or inline", .slot = NO_SLOT);
    LIE("either in a slot or inline", .flags = INLINE);
    LIE("without a slot", .slot = NO_SLOT, .flags = INLINE);
    LIE("without a slot", .slot = NO_SLOT, .flags = INLINE | NEW);
    LIE("without a slot", .slot = NO_SLOT, .flags = INLINE | FAILED);
    LIE("without a slot", .flags = FAILED);
    LIE("text is longer", .slot = NO_SLOT, .flags = FAILED | INLINE, .text = 33);
    LIE("layout id does not exist", .layout = 16);
    LIE("layout id does not exist", .layout = 65535);
    LIE("never introduced", .layout = 3);
    LIE("never introduced", .layout = 3, .flags = DIMS);
    LIE("dtype that does not exist", .code = 14);
    LIE("returned slots", .returns = 3);
    LIE("returned slots", .returns = 0xffffffff);
    lie_about_meta(&l, (struct descriptor){.sequence = 2, .returns = 1});
    lie_about_hints(&l);
    ask_about_no_channel();
    keep_slots(&l);
    steal_the_claim();

    shmb_close(l.runner);
    shmb_close(honest);
    shmb_segment_detach(&raw);
    bridge_close(&b);
}
