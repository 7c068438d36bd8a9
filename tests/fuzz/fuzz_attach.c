/* A file of any bytes is refused at attach, or is a segment all of whose parts lie inside it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/host.h"
#include "segment/attach.h"
#include "segment/inspect.h"

enum { LARGEST = 1 << 24, FIRST = 9 };

/* The bytes begin as the superblock of a geometry that they choose; what follows changes single
 * bytes, and the size. */
static uint64_t start(const uint8_t *data, uint8_t *file) {
    struct superblock b = {.channels = data[0] % 8,
                           .slots = 1u << data[1] % 6,
                           .meta_bytes = {64 * (uint64_t)data[2], 64 * (uint64_t)data[3]},
                           .body_bytes = {64 * (uint64_t)data[4], 64 * (uint64_t)data[5]}};
    if (!shmb_segment_plan(&b))
        b = (struct superblock){.magic = SEGMENT_MAGIC, .version = SEGMENT_VERSION, .size = 4096};
    memcpy(file, &b, sizeof b);
    uint64_t size =
        b.size + (data[6] & 1 ? (uint64_t)data[7] * 64 : 0) - (data[6] & 2 ? data[8] : 0);
    return size < LARGEST ? size : LARGEST;
}

static void inside(const struct segment *s, const void *at, uint64_t bytes) {
    uint64_t from = (uint64_t)((const uint8_t *)at - (const uint8_t *)s->base);
    if (from > s->size || bytes > s->size - from) abort();
}

static void walk(const struct segment *s) {
    const struct superblock *b = &s->block;
    for (uint32_t c = 0; c < b->channels; c++) {
        inside(s, shmb_segment_runner_line(s, c), sizeof(struct runner_line));
        inside(s, shmb_segment_channel_line(s, c), sizeof(struct channel_line));
        for (int d = REQUEST; d <= REPLY; d++) {
            struct lane l = shmb_segment_lane(s, c, d);
            inside(s, l.ring, l.count * sizeof *l.ring);
            for (uint32_t i = 0; i < l.count; i++) {
                inside(s, lane_meta(&l, i), l.meta_bytes);
                inside(s, lane_body(&l, i), l.body_bytes);
                if ((uintptr_t)lane_body(&l, i) % ALIGNMENT) abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static uint8_t file[sizeof(struct superblock)];
    shmb_segment_info info;
    static shmb_channel_info channels[MAX_CHANNELS];
    if (size < FIRST) return -1;
    if (fd < 0 && ((fd = memfd_create("segment", MFD_CLOEXEC)) < 0 || fchmod(fd, 0600) != 0))
        abort();
    uint64_t bytes = start(data, file);
    for (size_t i = FIRST; i + 1 < size; i += 2) file[data[i] % sizeof file] = data[i + 1];
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        pwrite(fd, file, bytes < sizeof file ? bytes : sizeof file, 0) < 0)
        abort();
    struct segment s;
    struct error e = {0};
    if (shmb_segment_read(fd, "fuzz", &s, &e)) {
        walk(&s);
        munmap(s.base, s.size);
        if (!shmb_inspect(fd, &info, channels)) abort();
    } else if (!e.status || !*e.message || s.base) {
        abort();
    }
    return 0;
}
