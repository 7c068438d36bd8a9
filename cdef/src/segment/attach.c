#include "segment/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment/names.h"
#include "segment/ring.h"

enum {
    HOST_SEMAPHORE_AT = 128,
    HOST_LINE_AT = 256,
    CHANNELS_AT = 512,
    PAGE = 4096,
    FIRST_SLOTS = 2, /* of each lane: reserved with the segment */
    RINGS_AT = sizeof(struct runner_line) + sizeof(struct label) + sizeof(struct channel_line)
};

static uint64_t attach_round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
static uint64_t ring_bytes(uint32_t slots) {
    return attach_round_up(slots * sizeof(struct descriptor), 128);
}
static uint64_t lane_bytes(const struct superblock *b, int direction) {
    return b->slots * (b->meta_bytes[direction] + b->body_bytes[direction]) +
           sizeof(struct last_layout) + b->meta_bytes[direction];
}

bool shmb_segment_plan(struct superblock *b) {
    if (b->channels < 1 || b->channels > MAX_CHANNELS || b->slots < 2 || b->slots > MAX_SLOTS ||
        b->slots & (b->slots - 1))
        return false;
    for (int d = REQUEST; d <= REPLY; d++)
        if (b->meta_bytes[d] % ALIGNMENT || b->body_bytes[d] % ALIGNMENT || !b->body_bytes[d] ||
            b->meta_bytes[d] < 256 || b->meta_bytes[d] > UINT32_MAX ||
            b->body_bytes[d] > (uint64_t)1 << 40)
            return false;
    b->magic = SEGMENT_MAGIC;
    b->version = SEGMENT_VERSION;
    b->features = SEGMENT_FEATURES;
    b->channel_offset = CHANNELS_AT;
    b->channel_stride = RINGS_AT + 2 * ring_bytes(b->slots);
    b->slot_offset = attach_round_up(CHANNELS_AT + b->channels * b->channel_stride, PAGE);
    b->slot_stride = attach_round_up(lane_bytes(b, REQUEST) + lane_bytes(b, REPLY), PAGE);
    b->size = b->slot_offset + b->channels * b->slot_stride;
    return b->size <= SIZE_MAX / 2;
}

/* Maps by another open file than s->fd: a mapping holds its file open, and with it the locks, also
 * in a forked child. */
static shmb_status map(struct segment *s, struct error *e) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return shmb_fail_errno(e, "cannot open the segment again, through /proc");
    s->base = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->base == MAP_FAILED) s->base = NULL;
    if (!s->base) shmb_fail_errno(e, "cannot map the segment");
    close(fd);
    return e->status;
}

static void attach_in_child(struct inherited *handle) {
    struct segment *s = (struct segment *)((char *)handle - offsetof(struct segment, inherited));
    shmb_fork_close(&s->fd);                            /* with its locks */
    if (s->base) mprotect(s->base, s->size, PROT_READ); /* kept arrays can be read */
}

shmb_status shmb_segment_format(int fd, const struct superblock *plan, struct segment *out,
                                struct error *e) {
    *out = (struct segment){.fd = fd, .size = plan->size, .block = *plan};
    if (map(out, e)) return e->status;
    shmb_fork_hold();
    shmb_fork_watch(&out->inherited, attach_in_child);
    shmb_fork_let_go();
    put(out->base, plan, sizeof *plan);
    put(&shmb_segment_host_line(out)->pid, &(uint32_t){(uint32_t)getpid()}, sizeof(uint32_t));
    return SHMB_OK;
}

static shmb_status check_file(const struct stat *st, const char *name, struct error *e) {
    if (st->st_uid != geteuid())
        return shmb_fail(e, SHMB_PERMISSION,
                         "the segment of \"%s\" belongs to user %u, expected %u: run host and "
                         "runner as one user",
                         name, st->st_uid, geteuid());
    if (st->st_mode & 077)
        return shmb_fail(
            e, SHMB_PERMISSION,
            "the segment of \"%s\" has mode %o, expected 600: others could write to it", name,
            st->st_mode & 0777);
    if (st->st_size < (off_t)sizeof(struct superblock))
        return shmb_fail(e, SHMB_CORRUPT,
                         "the segment of \"%s\" has %lld bytes, expected at least %zu: it is no "
                         "shmbridge segment",
                         name, (long long)st->st_size, sizeof(struct superblock));
    return SHMB_OK;
}

/* Every size and offset follows from the geometry: compute them again and compare. */
static shmb_status check_block(const struct superblock *b, uint64_t size, const char *name,
                               struct error *e) {
    if (b->magic != SEGMENT_MAGIC)
        return shmb_fail(e, SHMB_CORRUPT,
                         "the segment of \"%s\" is not a shmbridge segment: remove its file", name);
    if (b->version != SEGMENT_VERSION || b->features & ~SEGMENT_FEATURES)
        return shmb_fail(e, SHMB_INCOMPATIBLE,
                         "the host of \"%s\" uses version %u with features %x, this library "
                         "version %u with features %x: install the same "
                         "shmbridge on both sides",
                         name, b->version, b->features, SEGMENT_VERSION, SEGMENT_FEATURES);
    struct superblock expected = *b;
    if (!shmb_segment_plan(&expected) ||
        memcmp(&expected, b, offsetof(struct superblock, unused)) != 0)
        return shmb_fail(e, SHMB_CORRUPT,
                         "the segment of \"%s\" has sizes that contradict each other", name);
    if (b->size != size)
        return shmb_fail(e, SHMB_CORRUPT, "the segment of \"%s\" has %llu bytes, but declares %llu",
                         name, (unsigned long long)size, (unsigned long long)b->size);
    return SHMB_OK;
}

bool shmb_segment_read(int fd, const char *name, struct segment *out, struct error *e) {
    struct stat st;
    *out = (struct segment){.fd = fd};
    if (fstat(fd, &st) != 0) shmb_fail_errno(e, "cannot examine the segment");
    if (e->status || check_file(&st, name, e)) return false;
    out->size = (size_t)st.st_size;
    if (map(out, e)) return false;
    take_copy(&out->block, out->base, sizeof out->block);
    if (!check_block(&out->block, out->size, name, e)) return true;
    munmap(out->base, out->size);
    out->base = NULL;
    return false;
}

static shmb_status attach(const char *name, uint32_t worker, struct segment *out, struct error *e) {
    char path[NAME_ROOM], number[12];
    struct stat st;
    snprintf(number, sizeof number, "%u", worker);
    shmb_segment_path(name, worker ? number : NULL, path);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return shmb_fail(e, SHMB_NO_HOST,
                         "there is no host named \"%s\": start one first, e.g. shmbridge serve %s "
                         "(one in another container must share its directory with you)%s",
                         name, name,
                         stat(name, &st) == 0 && S_ISREG(st.st_mode)
                             ? "; for the file, write its scheme: onnx://, aot:// or tflite://"
                             : "");
    if (fd < 0 && errno == EACCES)
        return shmb_fail(
            e, SHMB_PERMISSION,
            "the segment of \"%s\" belongs to another user: run host and runner as one user", name);
    if (fd < 0) return shmb_fail_errno(e, "cannot open the segment");
    if (shmb_segment_read(fd, name, out, e)) shmb_fork_watch(&out->inherited, attach_in_child);
    else close(fd);
    return e->status;
}

shmb_status shmb_segment_attach(const char *name, uint32_t worker, struct segment *out,
                                struct error *e) {
    shmb_fork_hold();
    attach(name, worker, out, e);
    shmb_fork_let_go();
    return e->status;
}

void shmb_segment_unlock(struct segment *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

void shmb_segment_detach(struct segment *s) {
    shmb_fork_forget(&s->inherited);
    if (s->base) munmap(s->base, s->size);
    shmb_segment_unlock(s);
    s->base = NULL;
}

struct semaphore *shmb_segment_host_semaphore(const struct segment *s) {
    return (struct semaphore *)((uint8_t *)s->base + HOST_SEMAPHORE_AT);
}

struct host_line *shmb_segment_host_line(const struct segment *s) {
    return (struct host_line *)((uint8_t *)s->base + HOST_LINE_AT);
}

struct runner_line *shmb_segment_runner_line(const struct segment *s, uint32_t channel) {
    return (struct runner_line *)((uint8_t *)s->base + s->block.channel_offset +
                                  channel * s->block.channel_stride);
}

struct label *shmb_segment_label(const struct segment *s, uint32_t channel) {
    return (struct label *)(shmb_segment_runner_line(s, channel) + 1);
}

struct channel_line *shmb_segment_channel_line(const struct segment *s, uint32_t channel) {
    return (struct channel_line *)(shmb_segment_label(s, channel) + 1);
}

struct lane shmb_segment_lane(const struct segment *s, uint32_t channel, int direction) {
    const struct superblock *b = &s->block;
    uint8_t *rings = (uint8_t *)(shmb_segment_channel_line(s, channel) + 1);
    uint8_t *slots = (uint8_t *)s->base + b->slot_offset + channel * b->slot_stride +
                     (direction ? lane_bytes(b, REQUEST) : 0);
    size_t slot_bytes = b->meta_bytes[direction] + b->body_bytes[direction];
    return (struct lane){.segment = s,
                         .ring =
                             (struct descriptor *)(rings + (direction ? ring_bytes(b->slots) : 0)),
                         .slots = slots,
                         .last = (struct last_layout *)(slots + b->slots * slot_bytes),
                         .count = b->slots,
                         .backed = (1u << FIRST_SLOTS) - 1,
                         .meta_bytes = b->meta_bytes[direction],
                         .body_bytes = b->body_bytes[direction],
                         .slot_bytes = slot_bytes};
}

static int reserve(int fd, uint64_t at, uint64_t bytes) {
    int error;
    do error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (error == EINTR);
    return error;
}

/* A part of the file, in whole pages, each of which counts once: parts ascend. */
static int reserve_part(int fd, uint64_t at, uint64_t bytes, uint64_t *end, uint64_t *needed) {
    uint64_t from = at / PAGE * PAGE, to = attach_round_up(at + bytes, PAGE);
    *needed += to - (from > *end ? from : *end);
    *end = to;
    return fd < 0 ? 0 : reserve(fd, at, bytes);
}

int shmb_segment_reserve(int fd, const struct superblock *b, uint64_t *needed) {
    uint64_t end = *needed = 0;
    int error = reserve_part(fd, 0, b->slot_offset, &end, needed);
    for (uint32_t lane = 0; lane < 2 * b->channels && !error; lane++) {
        int d = lane % 2;
        uint64_t at = b->slot_offset + lane / 2 * b->slot_stride + (d ? lane_bytes(b, REQUEST) : 0);
        uint64_t slot = b->meta_bytes[d] + b->body_bytes[d], slots = b->slots * slot;
        error = reserve_part(fd, at, FIRST_SLOTS * slot, &end, needed);
        uint64_t last_layout = lane_bytes(b, d) - slots;
        if (!error) error = reserve_part(fd, at + slots, last_layout, &end, needed);
    }
    return error;
}

bool shmb_lane_back(struct lane *l, uint32_t slot) {
    uint64_t at = (uint64_t)(lane_meta(l, slot) - (uint8_t *)l->segment->base);
    if (reserve(l->segment->fd, at, l->slot_bytes)) return false;
    l->backed |= 1u << slot;
    return true;
}

int shmb_lane_grow(struct lane *l) {
    uint32_t without = lane_all(l) & ~l->backed;
    int slot = without ? __builtin_ctz(without) : -1;
    return without && shmb_lane_back(l, (uint32_t)slot) ? slot : -1;
}

void shmb_label_copy(const struct label *said, char *out) {
    uint32_t bytes;
    take_copy(&bytes, &said->bytes, sizeof bytes);
    if (bytes > LABEL_BYTES) bytes = LABEL_BYTES;
    take_copy(out, said->text, bytes);
    out[bytes] = 0;
}

void shmb_session_text(const uint8_t *session, char *out) {
    for (int i = 0; i < SESSION_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", session[i]);
}
