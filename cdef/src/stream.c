#include "stream.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fork.h"

enum { LEAST = 1 << 16, MOST = 1 << 20 };

enum flow stream_read(struct stream *s) {
    size_t more = s->in.size < LEAST  ? LEAST
                  : s->in.size < MOST ? s->in.size
                                      : MOST,
           before = s->in.size;
    void *to = bytes_add(&s->in, more);
    if (!to) return UNABLE;
    ssize_t n = read(s->from, to, more);
    s->in.size = before + (n > 0 ? (size_t)n : 0);
    if (n > 0) return MOVED;
    return n == 0 ? ENDED : errno == EAGAIN || errno == EINTR ? STUCK : UNABLE;
}

enum flow stream_write(struct stream *s) {
    while (s->sent < s->out.size) {
        ssize_t n = write(s->to, s->out.data + s->sent, s->out.size - s->sent);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? STUCK : errno == EPIPE ? ENDED : UNABLE;
        s->sent += (size_t)n;
    }
    s->out.size = s->sent = 0;
    if (s->out.room > MOST) bytes_free(&s->out);
    return MOVED;
}

void stream_take(struct stream *s, size_t used) {
    s->in.size -= used;
    if (s->in.size) memmove(s->in.data, s->in.data + used, s->in.size);
    else if (s->in.room > MOST) bytes_free(&s->in);
}

void stream_forget(struct stream *s) {
    stream_take(s, s->in.size);
    s->out.size = s->sent = 0;
}

void stream_close(struct stream *s) {
    fork_close(&s->from);
    fork_close(&s->to);
    bytes_free(&s->in);
    bytes_free(&s->out);
    s->sent = 0;
}
