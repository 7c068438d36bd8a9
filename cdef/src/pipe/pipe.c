/* The runner that speaks ML-Compiler-Bridge's protocol through two named pipes:
 * "pipe:///PATH?serdes=NAME". */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "pipe/frame.h"
#include "pipe/stream.h"
#include "process/fork.h"
#include "runner/runner.h"
#include "serdes/serdes.h"

enum { STALE_READS = 64 };

struct pipe {
    struct stream stream;
    const shmb_serdes *serdes;
    struct memory request, reply;
    struct builder advice;
    bool owed; /* the reply to a question that was given up */
    /* the question waits until that reply has come, so that a host never has two of one runner */
    bool unsent;
    bool spins;
    struct inherited inherited;
    char path[URL_ROOM];
};

/* ---- Connect ---- */

static void pipe_in_child(struct inherited *handle) {
    struct pipe *p = (struct pipe *)((char *)handle - offsetof(struct pipe, inherited));
    shmb_fork_close(&p->stream.from);
    shmb_fork_close(&p->stream.to);
}

static shmb_status pipe_open_end(const char *path, const char *end, int flags, int *fd,
                                 struct error *e) {
    char name[URL_ROOM + 8];
    struct stat st;
    snprintf(name, sizeof name, "%s.%s", path, end);
    *fd = open(name, flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (*fd < 0 && errno == ENOENT)
        return shmb_fail(e, SHMB_NO_HOST, "there is no pipe \"%.300s\": start a host there first",
                         name);
    if (*fd < 0 && errno == ENXIO)
        return shmb_fail(e, SHMB_NO_HOST, "no host reads the pipe \"%.300s\": start one first",
                         name);
    if (*fd < 0 && errno == EACCES)
        return shmb_fail(
            e, SHMB_PERMISSION,
            "the pipe \"%.300s\" does not admit this user: run host and runner as one user", name);
    if (*fd < 0) return shmb_fail_errno(e, name);
    if (fstat(*fd, &st)) shmb_fail_errno(e, name);
    else if (!S_ISFIFO(st.st_mode))
        shmb_fail(e, SHMB_INVALID,
                  "\"%.300s\" is no named pipe: expected the PATH of a host's PATH.in and PATH.out",
                  name);
    else if (st.st_uid != geteuid())
        shmb_fail(e, SHMB_PERMISSION,
                  "the pipe \"%.300s\" belongs to user %u, expected %u: run host and runner as one "
                  "user",
                  name, st.st_uid, geteuid());
    else return SHMB_OK;
    shmb_fork_close(fd);
    return e->status;
}

/* A process that dies closes its files in the order of their numbers, and the lock must not go
 * before the other end. */
static void lock_last(struct stream *s) {
    int last = fcntl(s->from, F_DUPFD_CLOEXEC, s->to);
    if (last < 0) return;
    shmb_fork_close(&s->from);
    s->from = last;
}

/* The end to read first: a host may wait in open until it has a reader. Its lock, since one that
 * was open for writing would hide from the host that the runner before has left. */
static shmb_status open_both(struct pipe *p, bool *present, struct error *e) {
    int unread;
    if (pipe_open_end(p->path, "in", O_RDONLY, &p->stream.from, e)) return e->status;
    *present = true; /* as far as pipes tell: a host that has died looks like one that opens them */
    bool locked = flock(p->stream.from, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) shmb_fail_errno(e, "cannot lock the pipes by flock");
    else if (!locked)
        shmb_fail(e, SHMB_BUSY,
                  "another runner uses \"%.300s\", which serves one at a time: close it, "
                  "or give each a host",
                  p->path);
    else if (!pipe_open_end(p->path, "out", O_WRONLY, &p->stream.to, e) &&
             ioctl(p->stream.to, FIONREAD, &unread) == 0 && unread)
        shmb_fail(e, SHMB_BUSY,
                  "the host at \"%.300s\" has not yet read the previous runner's request: is its "
                  "model busy?",
                  p->path);
    if (e->status) shmb_stream_close(&p->stream);
    else lock_last(&p->stream);
    return e->status;
}

static shmb_status pipe_try_connect(shmb_runner *r, void *state, int64_t until) {
    struct pipe *p = state;
    struct error *e = &r->broken;
    (void)until; /* nothing here waits */
    shmb_fork_hold();
    if (!open_both(p, &r->present, e)) shmb_fork_watch(&p->inherited, pipe_in_child);
    shmb_fork_let_go();
    enum flow flow = MOVED;
    for (int i = 0; i < STALE_READS && !e->status && flow == MOVED; i++) {
        flow = shmb_stream_read(&p->stream);
        shmb_stream_take(&p->stream, p->stream.in.size); /* meant for the runner before */
    }
    /* the host hung up on the runner before, and has not seen yet that it left */
    if (!e->status && flow == ENDED) {
        shmb_fork_forget(&p->inherited);
        shmb_stream_close(&p->stream);
        shmb_fail(e, SHMB_NO_HOST, "no host writes to the pipe \"%.300s.in\": start one first",
                  p->path);
    }
    return e->status;
}

static void pipe_release(struct pipe *p) {
    shmb_fork_forget(&p->inherited);
    shmb_stream_close(&p->stream);
    shmb_builder_free(&p->advice);
    shmb_memory_release(&p->request);
    shmb_memory_release(&p->reply);
    free(p);
}

static shmb_status read_url(struct pipe *p, struct url *url, struct error *e) {
    const char *name = shmb_url_take(url, "serdes");
    if (shmb_url_done(url, "serdes, ", e)) return e->status;
    if (!(p->serdes = shmb_serdes_choose(name ? name : "bitstream", e))) return e->status;
    if (!*url->where)
        return shmb_fail(e, SHMB_INVALID,
                         "the URL names no pipes: expected pipe:///PATH for PATH.in and PATH.out");
    strcpy(p->path, url->where);
    return SHMB_OK;
}

static shmb_status pipe_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    struct error *e = &r->broken;
    struct pipe *p = calloc(1, sizeof *p);
    if (!p) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    p->stream.from = p->stream.to = -1;
    p->spins = options->wait == SHMB_WAIT_SPIN;
    p->advice.error = &r->error;
    if (!read_url(p, url, e) &&
        (!shmb_memory_reserve(&p->request) || !shmb_memory_reserve(&p->reply)))
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    if (e->status || shmb_runner_try(r, options->connect_timeout, pipe_try_connect, p)) {
        pipe_release(p);
        return e->status;
    }
    r->kind_state = p;
    r->forked = &p->inherited.forked;
    return SHMB_OK;
}

static void pipe_close(shmb_runner *r) { pipe_release(r->kind_state); }

/* ---- Ask ---- */

static int pipe_broken(shmb_runner *r, shmb_status status, const char *why) {
    const struct pipe *p = r->kind_state;
    return (int)shmb_fail(&r->broken, status, "\"%.300s\": %s", p->path, why);
}

/* SIGPIPE must not reach the process, whose handlers are not ours: one that this write raises stays
 * in this thread. */
static enum flow write_quietly(struct stream *s) {
    sigset_t set, before, pending;
    if (!s->out.size) return MOVED;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    sigpending(&pending);
    enum flow flow = shmb_stream_write(s);
    if (flow == ENDED && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return flow;
}

static void pipe_begin(shmb_runner *r) {
    struct pipe *p = r->kind_state;
    shmb_memory_trim(&p->request, r->builder.used);
    shmb_builder_start(&r->builder, p->request.base, p->request.room, NULL);
}

/* The request as one frame, for one write. */
static shmb_status encode_request(shmb_runner *r) {
    struct pipe *p = r->kind_state;
    struct bytes *out = &p->stream.out;
    size_t at = out->size; /* behind the rest of a question that was given up half written */
    const shmb_tensor *fields = shmb_builder_tensors(&r->builder);
    r->error.status = SHMB_OK;
    if (!fields || !frame_begin(out, &at))
        shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for a request");
    else if (!shmb_serdes_encode(p->serdes, SHMB_REQUEST, fields, r->builder.count, r->want, true,
                                 out, &r->error))
        frame_end(out, at, 0);
    if (r->error.status) out->size = at;
    return r->error.status;
}

static shmb_status pipe_start(shmb_runner *r) {
    struct pipe *p = r->kind_state;
    if (p->stream.in.size && !p->owed)
        return (shmb_status)pipe_broken(r, SHMB_CORRUPT, "the host sent bytes without a request");
    if (shmb_runner_check_names(r)) return r->error.status;
    p->unsent = p->owed;
    if (!p->unsent && encode_request(r)) return r->error.status;
    write_quietly(&p->stream); /* what goes wrong here does so again in proceed */
    return SHMB_OK;
}

/* A failure's status and text; for good where that status is. */
static int take_failure(shmb_runner *r, const uint8_t *bytes, size_t size) {
    if (!*bytes || *bytes > SHMB_NO_MEMORY)
        return pipe_broken(r, SHMB_CORRUPT, "a reply came with a status that does not exist");
    shmb_status status =
        shmb_fail(&r->error, (shmb_status)*bytes, "%.*s", (int)size - 1, (const char *)bytes + 1);
    if (shmb_status_lasts(status)) r->broken = r->error;
    return (int)status;
}

static int pipe_take_advice(shmb_runner *r, const uint8_t *bytes, size_t size,
                            const shmb_serdes *serdes) {
    struct pipe *p = r->kind_state;
    shmb_dtype want = r->want;
    shmb_memory_trim(&p->reply, p->advice.used);
    shmb_builder_start(&p->advice, p->reply.base, p->reply.room, NULL);
    r->error.status = SHMB_OK;
    if (shmb_serdes_decode(serdes, SHMB_ADVICE, bytes, size, &want, NULL, &p->advice, &r->error)) {
        if (r->error.status == SHMB_CORRUPT) r->broken = r->error;
        return (int)r->error.status;
    }
    r->untyped = serdes == &shmb_serdes_bitstream;
    r->advice_count = p->advice.count;
    if (r->advice_count) r->advice_dtype = (shmb_dtype)p->advice.fields->dtype;
    return shmb_builder_tensors(&p->advice)
               ? SHMB_OK
               : (int)shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
}

/* A reply that is complete: its status; PENDING when there is none yet. One that nobody waits for
 * any more is dropped. */
static int pipe_take_reply(shmb_runner *r) {
    struct pipe *p = r->kind_state;
    const struct bytes *in = &p->stream.in;
    while (in->size >= FRAME_HEAD) {
        uint64_t length = frame_length(in->data), failed = length & frame_failed,
                 typed = length & frame_typed;
        length &= ~(frame_failed | frame_typed);
        if (failed ? !length || length > LONGEST_FAILURE : length > p->reply.room)
            return (int)shmb_fail(&r->broken, SHMB_CORRUPT,
                                  "\"%.200s\": expected a reply of at most %zu bytes, found one of "
                                  "%llu: does the host speak ML-Compiler-Bridge's protocol?",
                                  p->path, failed ? (size_t)LONGEST_FAILURE : p->reply.room,
                                  (unsigned long long)length);
        if (in->size - FRAME_HEAD < length) return PENDING;
        int status = PENDING;
        if (p->owed) p->owed = false;
        else if (failed) status = take_failure(r, in->data + FRAME_HEAD, (size_t)length);
        else
            status = pipe_take_advice(r, in->data + FRAME_HEAD, (size_t)length,
                                      typed ? &shmb_serdes_flatbuffers : p->serdes);
        shmb_stream_take(&p->stream, FRAME_HEAD + (size_t)length);
        if (status != PENDING) return status;
    }
    return PENDING;
}

/* Waits until bytes came (MOVED), or there is room for more (STUCK), at most until `until`. */
static enum flow wait_for_host(shmb_runner *r, int64_t until) {
    struct pipe *p = r->kind_state;
    struct pollfd ends[2] = {{.fd = p->stream.from, .events = POLLIN},
                             {.fd = p->stream.to, .events = p->stream.out.size ? POLLOUT : 0}};
    int64_t began = shmb_clock_ns(), left = p->spins ? 0 : until - began;
    if (left < 0) left = 0;
    struct timespec most = timespec_of(left);
    int ready = ppoll(ends, 2, &most, NULL);
    r->waited_ns += shmb_clock_ns() - began;
    if (ready < 0) return STUCK;
    if (ends[0].revents & POLLIN) return shmb_stream_read(&p->stream);
    return (ends[0].revents | ends[1].revents) & (POLLHUP | POLLERR | POLLNVAL) ? ENDED : STUCK;
}

static int proceed(shmb_runner *r, int64_t until) {
    struct pipe *p = r->kind_state;
    int status = pipe_take_reply(r); /* what came with a late reply */
    while (status == PENDING) {
        if (p->unsent && !p->owed) {
            p->unsent = false;
            if (encode_request(r)) return (int)r->error.status;
        }
        if (write_quietly(&p->stream) == UNABLE)
            return pipe_broken(r, SHMB_SYSTEM, "cannot write to the pipe");
        enum flow flow = wait_for_host(r, until);
        if (flow == ENDED)
            return pipe_broken(r, SHMB_HOST_GONE,
                               "the host has died or closed its pipes; close this runner and open "
                               "another once a host is back");
        if (flow == UNABLE) return pipe_broken(r, SHMB_NO_MEMORY, "no memory for a reply");
        status = pipe_take_reply(r);
        if (shmb_clock_ns() >= until) break;
    }
    return status;
}

static int pipe_proceed(shmb_runner *r, int64_t until) {
    struct pipe *p = r->kind_state;
    int64_t slice = shmb_clock_ns() + SLICE_NS;
    int status = proceed(r, earlier(until, earlier(slice, shmb_runner_until(r))));
    /* the next runner may come before this one is closed */
    if (r->broken.status) shmb_stream_close(&p->stream);
    return status;
}

static void pipe_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct pipe *p = r->kind_state;
    *out = p->advice.tensors[index];
}

static void pipe_abandon(shmb_runner *r) {
    struct pipe *p = r->kind_state;
    /* the host has seen nothing of it */
    if (!p->unsent && p->stream.out.size && !p->stream.sent) p->stream.out.size = 0;
    else if (!p->unsent) p->owed = true;
    p->unsent = false;
}

static const char *pipe_asks_again(shmb_runner *r) {
    const struct pipe *p = r->kind_state;
    if (p->owed) pipe_proceed(r, 0);
    return p->owed && !r->broken.status ? WHEN_IT_ANSWERS : NULL;
}

const struct runner_ops shmb_pipe_runner = {.scheme = "pipe",
                                            .open = pipe_open,
                                            .begin = pipe_begin,
                                            .start = pipe_start,
                                            .proceed = pipe_proceed,
                                            .advice = pipe_advice,
                                            .abandon = pipe_abandon,
                                            .asks_again = pipe_asks_again,
                                            .close = pipe_close};
