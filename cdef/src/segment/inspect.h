/* A bridge seen from outside, without a claim. */
#ifndef SHMB_INSPECT_H
#define SHMB_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "shmbridge.h"

/* What `ls` and `inspect` show of a segment, read through fd without claiming anything. What either
 * side says of itself (pids, labels, times) is a hint: any bytes. Times are CLOCK_MONOTONIC ns. */
typedef struct shmb_channel_info {
    uint64_t served; /* replies so far */
    uint64_t since;  /* when the runner last began to wait */
    uint32_t pid;
    bool alive, poisoned, waits; /* waits: a question has no reply yet */
    bool connects;               /* its claim has no answer yet */
    char label[256];
} shmb_channel_info;
typedef struct shmb_segment_info {
    uint32_t channels, pid;
    uint64_t size, request_bytes, advice_bytes;
    uint64_t since; /* when the host last began to wait */
    char session[33];
    bool alive, looping; /* looping: somebody receives */
} shmb_segment_info;
/* False when fd holds no segment of this version; channels[256] may be NULL. */
bool shmb_inspect(int fd, shmb_segment_info *out, shmb_channel_info *channels);
/* What a channel's last new layout was made of, in requests or (reply) in replies: *count
 * tensors with names, dtypes and dims, without data. The caller frees them (free). NULL: there
 * was none yet, or its bytes make no sense. */
shmb_tensor *shmb_inspect_layout(int fd, uint32_t channel, bool reply, int64_t *count);

#endif
