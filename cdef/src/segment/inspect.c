/* What `shmbridge ls` and `shmbridge inspect` show, read without claiming anything. */
#include <stdlib.h>
#include <sys/mman.h>

#include "message/header.h"
#include "segment/attach.h"
#include "segment/inspect.h"
#include "segment/peer.h"
#include "segment/ring.h"

/* How many messages of this claim a ring has had: their stamps count them. */
static uint64_t sent_messages(const struct lane *l, uint32_t generation) {
    uint64_t newest = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        struct descriptor d;
        uint64_t stamp = load_acquire(&l->ring[i].stamp);
        ring_take(l->ring, l->count, i, &d);
        if (stamp > newest && d.generation == generation) newest = stamp;
    }
    return newest;
}

static void inspect_channel(const struct segment *s, uint32_t i, shmb_channel_info *out) {
    const struct runner_line *runner = shmb_segment_runner_line(s, i);
    const struct channel_line *line = shmb_segment_channel_line(s, i);
    uint64_t ready = load_acquire(&line->ready), claim = load_acquire(&runner->claim);
    struct lane requests = shmb_segment_lane(s, i, REQUEST),
                replies = shmb_segment_lane(s, i, REPLY);
    uint32_t generation = (uint32_t)(ready >> 8);
    *out = (shmb_channel_info){.served = load_relaxed(&line->served),
                               .alive = shmb_peer_look(s->fd, CHANNEL_BYTE + (int)i) != PEER_DEAD,
                               .poisoned = (ready & 0xff) == POISONED,
                               .connects = (claim & 0xff) == CLAIMED && claim >> 8 > ready >> 8,
                               .waits = sent_messages(&requests, generation) >
                                        sent_messages(&replies, generation),
                               .since = load_relaxed(&runner->wait_hint.since)};
    take_copy(&out->pid, &runner->pid, sizeof out->pid);
    shmb_label_copy(shmb_segment_label(s, i), out->label);
}

bool shmb_inspect(int fd, shmb_segment_info *out, shmb_channel_info *channels) {
    struct error e = {0};
    struct segment s;
    if (!shmb_segment_read(fd, "", &s, &e)) return false;
    const struct superblock *b = &s.block;
    *out = (shmb_segment_info){.channels = b->channels,
                               .size = b->size,
                               .request_bytes = b->body_bytes[REQUEST],
                               .advice_bytes = b->body_bytes[REPLY],
                               .alive = shmb_peer_look(fd, HOST_BYTE) != PEER_DEAD,
                               .looping = shmb_peer_look(fd, LOOP_BYTE) != PEER_DEAD,
                               .since = load_relaxed(&shmb_segment_host_line(&s)->wait_hint.since)};
    take_copy(&out->pid, &shmb_segment_host_line(&s)->pid, sizeof out->pid);
    shmb_session_text(b->session, out->session);
    for (uint32_t i = 0; channels && i < b->channels; i++) inspect_channel(&s, i, &channels[i]);
    munmap(s.base, s.size);
    return true;
}

/* A private copy of a lane's last header, dims behind it; NULL when it is being written. */
static uint8_t *copy_last(const struct lane *l, uint32_t *header_bytes, uint32_t *dims) {
    uint64_t version = load_acquire(&l->last->version);
    take_copy(header_bytes, &l->last->header_bytes, sizeof *header_bytes);
    take_copy(dims, &l->last->dims, sizeof *dims);
    size_t bytes = dims_at(*header_bytes) + *dims * sizeof(int64_t);
    uint8_t *copy = version && bytes <= l->meta_bytes ? malloc(bytes) : NULL;
    if (!copy) return NULL;
    take_copy(copy, l->last + 1, bytes);
    load_fence();
    if (version % 2 == 0 && load_relaxed(&l->last->version) == version) return copy;
    free(copy);
    return NULL;
}

static shmb_tensor *read_last(const struct lane *l, int64_t *count) {
    uint32_t header_bytes, dims;
    const char *why;
    uint8_t *copy = copy_last(l, &header_bytes, &dims);
    if (!copy) return NULL;
    struct layout *layout = shmb_header_read(copy, header_bytes, &why);
    shmb_tensor *tensors = NULL;
    if (layout && layout->dims == dims) {
        tensors = shmb_layout_tensors(layout, (const int64_t *)(copy + dims_at(header_bytes)));
        *count = layout->count;
    }
    free(layout);
    free(copy);
    return tensors;
}

shmb_tensor *shmb_inspect_layout(int fd, uint32_t channel, bool reply, int64_t *count) {
    struct error e = {0};
    struct segment s;
    if (!shmb_segment_read(fd, "", &s, &e)) return NULL;
    shmb_tensor *tensors = NULL;
    for (int tries = 0; tries < 100 && !tensors && channel < s.block.channels; tries++) {
        struct lane lane = shmb_segment_lane(&s, channel, reply);
        tensors = read_last(&lane, count);
    }
    munmap(s.base, s.size);
    return tensors;
}
