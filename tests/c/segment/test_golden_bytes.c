/* The segment's bytes are what docs/protocol.md draws: superblock, host line, claim, first request,
 * its header. */
#include "bridge.h"

static uint8_t *segment;

static void expect(size_t at, const void *bytes, size_t size) {
    if (memcmp(segment + at, bytes, size) == 0) return;
    fprintf(stderr, "at byte %zu:\n  expected", at);
    for (size_t i = 0; i < size; i++) fprintf(stderr, " %02x", ((const uint8_t *)bytes)[i]);
    fprintf(stderr, "\n  found   ");
    for (size_t i = 0; i < size; i++) fprintf(stderr, " %02x", segment[at + i]);
    fprintf(stderr, "\n");
    exit(1);
}

#define EXPECT(at, ...)                                                                            \
    expect(at, (const uint8_t[]){__VA_ARGS__}, sizeof (const uint8_t[]){__VA_ARGS__})

static void expect_pid(size_t at) { expect(at, &(uint32_t){(uint32_t)getpid()}, 4); }

int main(void) {
    struct bridge b;
    shmb_plan plan = {.channels = 2,
                      .slots = 2,
                      .header_bytes = 512,
                      .request_bytes = 4096,
                      .advice_bytes = 1024};
    uint8_t session[SESSION_BYTES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    memcpy(session + 12, &(uint32_t){(uint32_t)getpid()}, 4);
    bridge_open_session(&b, "golden", plan, SHMB_WAIT_DEFAULT, session);
    char path[NAME_ROOM];
    shmb_segment_path(b.name, NULL, path);
    int fd = open(path, O_RDONLY);
    segment = mmap(NULL, 36864, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(segment != MAP_FAILED);

    /* magic, version, features */
    EXPECT(0, 'H', 'M', 'B', 'R', 'D', 'G', '1', 0, 3, 0, 0, 0, 0, 0, 0, 0);
    EXPECT(16, 0, 0x90, 0, 0, 0, 0, 0, 0); /* 36864 bytes */
    expect(24, session, sizeof session);
    EXPECT(40, 2, 0, 0, 0, 2, 0, 0, 0); /* channels, slots */
    /* meta bytes, both ways */
    EXPECT(48, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0);
    EXPECT(64, 0, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0); /* body bytes */
    /* channels from 512, each 896 long */
    EXPECT(80, 0, 2, 0, 0, 0, 0, 0, 0, 0x80, 3, 0, 0, 0, 0, 0, 0);
    /* slots from 4096, 16384 a channel */
    EXPECT(96, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0);
    EXPECT(256, 0, 0, 0, 0, 0, 0, 0, 0); /* awake, open */
    expect_pid(264);

    shmb_runner *r = bridge_connect(&b, "wait=spin&label=a.c");
    EXPECT(512, CLAIMED, 1, 0, 0, 0, 0, 0, 0); /* claim: generation 1 */
    expect_pid(512 + 20);
    EXPECT(640, 3, 0, 0, 0, 'a', '.', 'c', 0);
    /* ready: generation 1; both request slots are free */
    EXPECT(896, READY, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0);
    EXPECT(512 + 592, 1, 0, 0, 0); /* the runner's semaphore: it did not sleep */

    int64_t key = bridge_ask_x(&b, r, 0x0102030405060708, SHMB_INT64);
    EXPECT(1152, 1, 0, 0, 0, 0, 0, 0, 0, /* stamp */
           1, 0, 0, 0, 0, 0, 0, 0,       /* sequence */
           1, 0, 0, 0, 0, 0, 0, 0,       /* generation, no slots returned */
           0, 0, 0, NEW,                 /* layout 0, slot 0 */
           SHMB_INT64, 0, 0, 0,          /* dtype wanted */
           64, 0, 0, 0);                 /* bytes of the header */
    static const uint8_t header[64] = {
        28, 0, 0, 0, 'S',        'H',         'M', 'B', 6,  0, 8, 0, 4,   0, 12, 0,
        12, 0, 4, 0, 8,          0,           9,   0,   10, 0, 0, 0, 20,  0, 0,  0,
        4,  0, 0, 0, 1,          0,           0,   0,   4,  0, 0, 0, 30,  0, 0,  0,
        8,  0, 0, 0, SHMB_INT64, SHMB_TENSOR, 0,   0,   1,  0, 0, 0, 'x', 0, 0,  0};
    expect(4096, header, sizeof header);
    /* the same for who looks from outside: version, bytes, dims, header */
    EXPECT(4096 + 2 * (512 + 4096), 2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0);
    expect(4096 + 2 * (512 + 4096) + 64, header, sizeof header);
    EXPECT(4096 + 512, 8, 7, 6, 5, 4, 3, 2, 1);

    CHECK(reply_i64(b.host, key, false, 5) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    EXPECT(1152 + 128, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0,
           0, NEW);
    /* a new layout's advice lies in the slot */
    EXPECT(4096 + 2 * (512 + 4096) + 64 + 512 + 512, 5, 0, 0, 0, 0, 0, 0, 0);

    bridge_asked(&b, r, 7);
    EXPECT(1152 + 64, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0,
           0, 0);
    EXPECT(1152 + 128 + 64, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,
           0, 0, NO_SLOT, INLINE);
    EXPECT(1152 + 128 + 64 + 32, 8, 0, 0, 0, 0, 0, 0, 0);

    /* after another layout, the first one is known by its id */
    shmb_set_i64(r, "y", 7);
    CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT64), SHMB_OK);
    EXPECT(1152 + 24, 1, 0); /* layout */
    EXPECT(1152 + 27, NEW);
    bridge_asked(&b, r, 7);
    EXPECT(1152 + 64 + 24, 0, 0);
    EXPECT(1152 + 64 + 27, 0); /* no flag */

    shmb_close(r);
    EXPECT(512, FREE, 1, 0, 0, 0, 0, 0, 0);
    bridge_close(&b);
}
