#include "pipe/stream.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "process/fork.h"

enum { LEAST = 1 << 16, MOST = 1 << 20 };

static enum flow stopped(void) { return errno == EAGAIN || errno == EINTR ? STUCK : UNABLE; }

enum flow shmb_stream_read(struct stream *s) {
    size_t before = s->in.size, more = before < LEAST ? LEAST : before;
    if (more > MOST) more = MOST;
    void *to = shmb_bytes_add(&s->in, more);
    if (!to) return UNABLE;
    ssize_t n = read(s->from, to, more);
    s->in.size = before + (n > 0 ? (size_t)n : 0);
    if (n > 0) return MOVED;
    return n == 0 ? ENDED : stopped();
}

enum flow shmb_stream_write(struct stream *s) {
    while (s->sent < s->out.size) {
        ssize_t n = write(s->to, s->out.data + s->sent, s->out.size - s->sent);
        if (n < 0) return errno == EPIPE ? ENDED : stopped();
        s->sent += (size_t)n;
    }
    s->out.size = s->sent = 0;
    if (s->out.room > MOST) shmb_bytes_free(&s->out);
    return MOVED;
}

void shmb_stream_take(struct stream *s, size_t used) {
    s->in.size -= used;
    if (s->in.size) memmove(s->in.data, s->in.data + used, s->in.size);
    else if (s->in.room > MOST) shmb_bytes_free(&s->in);
}

void shmb_stream_close(struct stream *s) {
    shmb_fork_close(&s->from);
    shmb_fork_close(&s->to);
    shmb_bytes_free(&s->in);
    shmb_bytes_free(&s->out);
    s->sent = 0;
}
