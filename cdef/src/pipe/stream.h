/* Two pipe ends that never block, and the bytes between: those that came and those that wait to be
 * written. */
#ifndef SHMB_STREAM_H
#define SHMB_STREAM_H

#include "base/bytes.h"

struct stream {
    int from, to; /* the end to read, the end to write; -1: none */
    struct bytes in, out;
    size_t sent; /* of out */
};

enum flow {
    MOVED,  /* bytes came; or all was written */
    STUCK,  /* not now */
    ENDED,  /* nobody is at the other end */
    UNABLE, /* no memory, or errno */
};

/* Reads once: what is there, up to a limit that grows with what has come, never with what a length
 * claims. */
enum flow shmb_stream_read(struct stream *s);
/* Writes what waits. May raise SIGPIPE. */
enum flow shmb_stream_write(struct stream *s);
/* The first bytes of `in` were used. The rest moves to the front, so that every frame begins
 * aligned. */
void shmb_stream_take(struct stream *s, size_t used);
void shmb_stream_close(struct stream *s);

#endif
