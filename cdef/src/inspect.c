/* What `shmbridge ls` shows, read without claiming anything. */
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "attach.h"
#include "host.h"
#include "peer.h"
#include "ring.h"

bool shmb_peer_lock(int fd, int byte) { return peer_lock(fd, byte); }
bool shmb_peer_alive(int fd, int byte) { return peer_alive(fd, byte); }

static void inspect_channel(const struct segment *s, uint32_t i, shmb_channel_info *out) {
    const struct runner_line *runner = segment_runner_line(s, i);
    const struct channel_line *line = segment_channel_line(s, i);
    uint64_t ready = load_acquire(&line->ready);
    *out = (shmb_channel_info){.served = load_relaxed(&line->served),
                               .generation = (uint32_t)(ready >> 8),
                               .pid = runner->pid,
                               .alive = peer_alive(s->fd, CHANNEL_BYTE + (int)i),
                               .poisoned = (ready & 0xff) == POISONED};
}

bool shmb_inspect(int fd, shmb_segment_info *out, shmb_channel_info *channels) {
    struct error e = {0};
    struct segment s;
    if (!segment_read(fd, "", &s, &e)) return false;
    const struct superblock *b = &s.block;
    *out = (shmb_segment_info){.version = b->version,
                               .channels = b->channels,
                               .slots = b->slots,
                               .size = b->size,
                               .header_bytes = b->meta_bytes[REQUEST],
                               .request_bytes = b->body_bytes[REQUEST],
                               .advice_bytes = b->body_bytes[REPLY],
                               .pid = segment_host_line(&s)->pid,
                               .alive = peer_alive(fd, HOST_BYTE),
                               .closed = load_acquire(&segment_host_line(&s)->closed)};
    session_text(b->session, out->session);
    for (uint32_t i = 0; channels && i < b->channels; i++) inspect_channel(&s, i, &channels[i]);
    munmap(s.base, s.size);
    return true;
}
