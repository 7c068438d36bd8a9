/* ML-Compiler-Bridge's frames, whose length's top two bits are ours: docs/protocol.md has the
 * format. */
#ifndef SHMB_FRAME_H
#define SHMB_FRAME_H

#include <string.h>

#include "runner/protocol.h"

enum { FRAME_HEAD = 8, LONGEST_FAILURE = 1 << 16 };
static const uint64_t frame_failed = (uint64_t)1 << 63, frame_typed = (uint64_t)1 << 62;

static inline uint64_t frame_length(const uint8_t *head) {
    uint64_t length;
    memcpy(&length, head, sizeof length);
    return length;
}

/* Room for a frame's length behind what *out holds; frame_end writes it there. */
static inline bool frame_begin(struct bytes *out, size_t *at) {
    *at = out->size;
    return shmb_bytes_add(out, FRAME_HEAD);
}

static inline void frame_end(struct bytes *out, size_t at, uint64_t flag) {
    uint64_t length = (out->size - at - FRAME_HEAD) | flag;
    memcpy(out->data + at, &length, sizeof length);
}

/* The protocol, with that SerDes (frames.c). limit: bytes of the longest frame that
 * is accepted. NULL: no memory. */
extern const struct protocol shmb_frames_protocol;
void *shmb_frames_new(const shmb_serdes *serdes, size_t limit);
/* Once: failures are answered with that number, of dtype `as` where the compiler wants none. path:
 * what the line on stderr begins with. Errors: INVALID, INEXACT, NO_MEMORY. */
shmb_status shmb_frames_set_default(void *state, const char *text, shmb_dtype as, const char *path,
                                    struct error *e);

#endif
