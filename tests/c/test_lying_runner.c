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
};

static struct liar liar(void) {
    struct liar l = {.runner = bridge_connect(&b, "")};
    shmb_set_i64(l.runner, "x", 1);
    int64_t key = bridge_ask(&b, l.runner, SHMB_INT64);
    l.channel = key_channel(key);
    bridge_answer(&b, key);
    CHECK_STATUS(l.runner, bridge_result(l.runner), SHMB_OK);
    lane = shmb_segment_lane(&raw, l.channel, REQUEST);
    return l;
}

static uint32_t generation_of(const struct liar *l) {
    return (uint32_t)(atomic_load(&shmb_segment_runner_line(&raw, l->channel)->claim) >> 8);
}

/* Sends d as the channel's second message; the host must refuse it and say why. */
static void expect(struct liar *l, struct descriptor d, const char *why) {
    if (!d.generation) d.generation = generation_of(l);
    struct descriptor *to = &lane.ring[1];
    memcpy(&to->sequence, &d.sequence, sizeof d - offsetof(struct descriptor, sequence));
    atomic_store(&to->stamp, 2);
    CHECK(shmb_host_receive(b.host, 1000000) < 0);
    shmb_set_i64(l->runner, "x", 1);
    CHECK_STATUS(l->runner, shmb_evaluate(l->runner), SHMB_CORRUPT);
    if (!strstr(shmb_error_message(l->runner), why)) {
        fprintf(stderr, "expected \"…%s…\", found \"%s\"\n", why, shmb_error_message(l->runner));
        exit(1);
    }
    CHECK_STATUS(l->runner, shmb_evaluate(l->runner), SHMB_CORRUPT); /* for good */
    shmb_close(l->runner);
    *l = liar(); /* the same channel, claimed anew */
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

    struct field f[2] = {
        {.name = "a", .name_bytes = 1, .dtype = SHMB_INT64, .rank = 2},
        {.name = "b", .name_bytes = 1, .dtype = SHMB_UINT8, .kind = SHMB_STRINGS, .rank = 1}};
    size = (uint32_t)shmb_header_write(f, 2, meta, 4096);
    int64_t *dims = (int64_t *)(meta + (size + 7) / 8 * 8);
    const int64_t lies[][4] = {
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
        expect(l, d, "offsets fall");
    }
}

int main(void) {
    char path[NAME_ROOM];
    struct error e = {0};
    bridge_open(&b, "liar", small_plan, SHMB_WAIT_DEFAULT);
    shmb_segment_name(b.name, NULL, path);
    CHECK(shmb_segment_read(shm_open(path, O_RDWR, 0), b.name, &raw, &e));
    shmb_runner *honest = bridge_connect(&b, "");
    struct liar l = liar();

#define LIE(why, ...)                                                                              \
    do {                                                                                           \
        struct descriptor d = {.sequence = 2, .slot = 0, .returns = 1, __VA_ARGS__};               \
        expect(&l, d, (why));                                                                      \
        shmb_set_i64(honest, "x", 1);                                                              \
        CHECK_STATUS(honest, bridge_turn(&b, honest, SHMB_INT64), SHMB_OK);                        \
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

    shmb_close(l.runner);
    shmb_close(honest);
    shmb_segment_detach(&raw);
    bridge_close(&b);
    return 0;
}
