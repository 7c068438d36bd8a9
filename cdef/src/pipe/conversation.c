#include "pipe/conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipe/frame.h"
#include "runner/nonblocking.h"
#include "serdes/serdes.h"
#include "llvm/llvm.h"

enum { PATIENCE_MS = 10, READS = 64 /* in a turn, so that others have theirs */ };

/* ---- Open and close ---- */

static void conversation_in_child(struct inherited *handle) {
    struct conversation *c =
        (struct conversation *)((char *)handle - offsetof(struct conversation, inherited));
    shmb_fork_close(&c->stream.from);
    shmb_fork_close(&c->stream.to);
    shmb_fork_close(&c->locked);
}

/* Another open file of the same pipe: its name may mean another one by now. */
static int open_again(int fd, int flags) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

static shmb_status open_pipe(const char *path, const char *end, int flags, int *fd,
                             struct error *e) {
    char name[4096];
    struct stat st;
    snprintf(name, sizeof name, "%s.%s", path, end);
    *fd = open(name, flags | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st)) return shmb_fail_errno(e, name);
    if (S_ISFIFO(st.st_mode)) return SHMB_OK;
    return shmb_fail(e, SHMB_INVALID, "\"%.300s\" exists and is not a named pipe", name);
}

/* The compiler's end of PATH.in first: it may wait in open for a reader's counterpart, and does so
 * in this order. */
static shmb_status open_pipes(struct conversation *c, const char *path, struct error *e) {
    if (open_pipe(path, "in", O_PATH, &c->in_path, e) ||
        open_pipe(path, "out", O_RDONLY | O_NONBLOCK, &c->locked, e))
        return e->status;
    bool locked = flock(c->locked, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK)
        return shmb_fail_errno(e, "cannot lock the pipes by flock");
    if (!locked)
        return shmb_fail(
            e, SHMB_IN_USE,
            "a live host has the pipes \"%.300s\" already: close it, or choose another path", path);
    c->stream.to = open_again(c->in_path, O_RDWR);
    c->stream.from = open_again(c->locked, O_RDONLY);
    return c->stream.to < 0 || c->stream.from < 0 ? shmb_fail_errno(e, "cannot open the pipes")
                                                  : SHMB_OK;
}

/* Reads away what a compiler that is no more has left unread. */
static void drain(const struct conversation *c) {
    char bytes[4096];
    while (c->stream.to >= 0 && read(c->stream.to, bytes, sizeof bytes) > 0) continue;
}

void shmb_conversation_close(struct conversation *c) {
    shmb_fork_forget(&c->inherited);
    shmb_stream_close(&c->stream);
    shmb_fork_close(&c->locked);
    shmb_fork_close(&c->in_path);
}

void shmb_conversation_free(struct conversation *c) {
    shmb_conversation_close(c);
    shmb_close(c->runner);
    if (c->state) c->protocol->free(c->state);
    free(c->path);
    free(c);
}

static shmb_status make_protocol(struct conversation *c, const char *protocol, const char *detail,
                                 size_t limit, struct error *e) {
    if (strcmp(protocol, "frames") == 0) {
        const shmb_serdes *serdes = shmb_serdes_choose(detail, e);
        if (!serdes) return e->status;
        c->protocol = &shmb_frames_protocol;
        c->state = shmb_frames_new(serdes, limit);
    } else if (strcmp(protocol, "llvm") == 0) {
        c->protocol = &shmb_llvm_protocol;
        c->state = shmb_llvm_new(detail, e);
        if (c->state) shmb_llvm_limit(c->state, &c->server->left);
    } else
        return shmb_fail(e, SHMB_INVALID, "protocol \"%.60s\": expected frames or llvm", protocol);
    return c->state || e->status ? e->status
                                 : shmb_fail(e, SHMB_NO_MEMORY, "no memory for a conversation");
}

shmb_status shmb_conversation_open(struct conversation *c, const char *path, const char *protocol,
                                   const char *detail, size_t limit) {
    struct error *e = &c->server->error;
    char out[4096];
    if (make_protocol(c, protocol, detail, limit, e)) return e->status;
    if (!(c->path = strdup(path)))
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a conversation");
    shmb_fork_hold();
    if (!open_pipes(c, path, e)) shmb_fork_watch(&c->inherited, conversation_in_child);
    shmb_fork_let_go();
    if (e->status) return e->status;
    snprintf(out, sizeof out, "/proc/self/fd/%d", c->locked);
    int events = c->server->events;
    c->watch = events < 0 ? -1 : inotify_add_watch(events, out, IN_MODIFY | IN_CLOSE_WRITE);
    drain(c);
    return SHMB_OK;
}

/* ---- A conversation ends ---- */

/* A pipe that had a writer says so for ever; a new open file of it begins anew. Without descriptors
 * there is none, and nothing to poll, until a later turn gets one. */
static void open_from_anew(struct conversation *c) {
    shmb_fork_hold();
    shmb_fork_close(&c->stream.from);
    if (c->stream.to < 0) c->stream.to = open_again(c->in_path, O_RDWR);
    if (c->stream.to >= 0) c->stream.from = open_again(c->locked, O_RDONLY);
    shmb_fork_let_go();
}

/* Forgets it: its question, its answer, what it did not read, and what was read of it. */
static void conversation_end(struct conversation *c) {
    if (c->phase == ASKING) shmb_runner_abandon(c->runner, SHMB_RUNNER_GONE);
    else shmb_discard(c->runner);
    c->protocol->end(c->state);
    shmb_stream_take(&c->stream, c->stream.in.size - c->fresh);
    c->stream.out.size = c->stream.sent = 0;
    drain(c);
    open_from_anew(c);
    c->phase = QUIET;
}

/* It cannot go on. The compiler sees an end of file until it has closed its own; one that would
 * spin then waits for ever, which the server's caller is told. */
static void conversation_refuse(struct conversation *c, const char *why) {
    c->phase = DEAF;
    if (!c->protocol->resumes) shmb_fork_close(&c->stream.to);
    else shmb_fail(&c->server->error, SHMB_DROPPED, "%.300s: %s", c->path, why);
}

/* The compiler left, and the next one may be there already. What is in the pipe is the next one's,
 * since a compiler leaves only after its answer; but one that was killed may have left an answer
 * that it did not read, which goes, or a question that was not read. With either, the next one
 * would get each answer one question late. Nobody can tell whose the bytes are, so all are dropped,
 * and the next one sees the end of its pipe. In LLVM's bytes, a header shows where a compiler
 * begins. */
static void conversation_left(struct conversation *c) {
    bool mixed = c->dirty && c->phase != ASKING;
    if (mixed && c->protocol->resumes) return;
    c->dirty = false; /* what the last one wrote is no byte of the next one */
    if (mixed) c->fresh = 0;
    conversation_end(c);
    if (mixed) conversation_refuse(c, "its bytes are lost among the last one's");
}

/* Events come in the order in which things happened. */
void shmb_conversations_note(shmb_pipe_server *server) {
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t bytes = sizeof buffer;
    while (bytes > (ssize_t)sizeof buffer / 2) { /* else there was no more */
        bytes = server->events < 0 ? 0 : read(server->events, buffer, sizeof buffer);
        const struct inotify_event *event;
        for (ssize_t at = 0; at < bytes; at += (ssize_t)(sizeof *event + event->len)) {
            event = (const struct inotify_event *)(buffer + at);
            struct conversation *c = NULL;
            for (int i = 0; i < server->count; i++)
                if (server->conversations[i]->watch == event->wd) c = server->conversations[i];
            if (c && event->mask & IN_MODIFY) c->dirty |= c->phase != ASKING;
            if (c && event->mask & IN_CLOSE_WRITE) conversation_left(c);
        }
    }
}

void shmb_conversation_hung_up(struct conversation *c) {
    shmb_conversations_note(c->server); /* else its event would end the next one's later */
    conversation_end(c);                /* there may be no inotify */
}

/* ---- A conversation goes on ---- */

void shmb_conversation_answer(struct conversation *c, shmb_runner *r, shmb_status status) {
    c->phase = TALKING;
    c->dirty = false;
    if (c->protocol->answer(c->state, r, status, &c->stream.out))
        conversation_refuse(c, "no memory for an answer");
}

/* Has the question its answer? */
static bool collect(struct conversation *c) {
    int status = shmb_runner_wait(c->runner, 0);
    if (status == PENDING) return false;
    shmb_conversation_answer(c, c->runner, (shmb_status)status);
    return true;
}

static void conversation_ask(struct conversation *c, shmb_dtype want) {
    shmb_status status = c->runner ? shmb_runner_start(c->runner, want) : SHMB_NO_HOST;
    if (status) shmb_conversation_answer(c, c->runner, status);
    else c->phase = ASKING;
}

static void conversation_give_up(struct conversation *c, const struct error *e) {
    if (!c->protocol->resumes) {
        if (c->runner) c->runner->error = *e;
        shmb_conversation_answer(c, c->runner, e->status);
        shmb_stream_write(&c->stream);
    }
    conversation_refuse(c, e->message);
}

/* Is there a question (or an answer without one) in what has come? */
static bool understand(struct conversation *c) {
    const struct bytes *in = &c->stream.in;
    size_t used = 0;
    shmb_dtype want = SHMB_ANY;
    struct error e = {0};
    if (c->phase == DEAF) shmb_stream_take(&c->stream, in->size);
    if (!in->size) return false;
    int result = c->protocol->feed(c->state, in->data, in->size, &used, c->runner, &want, &e);
    shmb_stream_take(&c->stream, used);
    if (result == ASK) conversation_ask(c, want);
    else if (result == GIVEN) shmb_conversation_answer(c, NULL, SHMB_OK);
    else if (result != MORE) conversation_give_up(c, &e);
    return result == ASK || result == GIVEN;
}

/* Reads until there is a question: false when there is none yet. */
static bool listen(struct conversation *c) {
    for (int i = 0; !understand(c); i++) {
        if (c->phase == QUIET || c->stream.in.size) shmb_conversations_note(c->server);
        size_t old = c->stream.in.size;
        enum flow flow = shmb_stream_read(&c->stream);
        c->fresh = c->stream.in.size - old;
        if (flow != STUCK) shmb_conversations_note(c->server); /* whose are the fresh bytes? */
        c->fresh = 0;
        if (flow == STUCK) c->dirty = false;
        else if (flow == UNABLE) conversation_refuse(c, "what the compiler writes cannot be read");
        else if (flow == ENDED && c->phase != QUIET) conversation_end(c);
        if (c->phase == QUIET && (flow == MOVED || flow == STUCK)) c->phase = TALKING;
        if (flow != MOVED || i == READS) return false;
    }
    return true;
}

/* Slow readers get a moment: who replies may not come back to the pipes for long. */
static bool say(struct conversation *c) {
    if (c->stream.to < 0) c->stream.out.size = c->stream.sent = 0;
    if (!c->stream.out.size) return true;
    while (shmb_stream_write(&c->stream) != MOVED) {
        struct pollfd to = {.fd = c->stream.to, .events = POLLOUT};
        if (poll(&to, 1, PATIENCE_MS) <= 0) return false;
    }
    return true;
}

void shmb_conversation_turn(struct conversation *c) {
    if (c->stream.from < 0 && c->locked >= 0) open_from_anew(c);
    if (c->stream.from < 0) return;
    if (c->phase == ASKING && !collect(c)) return;
    while (say(c) && listen(c) && c->phase != ASKING) continue; /* the model has just been asked */
}

void shmb_conversation_flush(struct conversation *c) {
    if (c->phase == ASKING && collect(c)) say(c);
}
