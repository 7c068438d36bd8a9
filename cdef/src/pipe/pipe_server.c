#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "pipe/conversation.h"
#include "pipe/frame.h"

enum { MANY_NS = 1000 * 1000 };

/* ---- Make ---- */

shmb_pipe_server *shmb_pipe_server_new(int64_t decisions) {
    shmb_pipe_server *server = calloc(1, sizeof *server);
    if (!server) return NULL;
    server->left = decisions < 0 ? INT64_MAX : decisions;
    /* a Python SerDes runs with it locked, and may let a signal handler reply */
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&server->mutex, &kind);
    server->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->bell < 0) shmb_fail_errno(&server->error, "cannot make a bell by eventfd");
    server->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return server;
}

void shmb_pipe_server_free(shmb_pipe_server *server) {
    if (!server) return;
    for (int i = 0; i < server->count; i++) shmb_conversation_free(server->conversations[i]);
    free(server->conversations);
    free(server->ends);
    shmb_fork_close(&server->bell);
    shmb_fork_close(&server->events);
    free(server);
}

static bool pipe_server_make_room(shmb_pipe_server *server) {
    size_t count = (size_t)server->count + 1;
    void *conversations = realloc(server->conversations, count * sizeof *server->conversations);
    if (conversations) server->conversations = conversations;
    void *ends = realloc(server->ends, (1 + 2 * count) * sizeof *server->ends);
    if (ends) server->ends = ends;
    return conversations && ends;
}

shmb_status shmb_pipe_server_add(shmb_pipe_server *server, const char *path, const char *protocol,
                                 const char *detail, size_t limit, shmb_runner *runner) {
    if (!server || server->bell < 0) {
        shmb_close(runner);
        return server ? server->error.status : SHMB_NO_MEMORY;
    }
    struct conversation *c = calloc(1, sizeof *c);
    server->error = (struct error){0};
    if (!c || !pipe_server_make_room(server)) {
        free(c);
        shmb_close(runner);
        return shmb_fail(&server->error, SHMB_NO_MEMORY, "no memory for a conversation");
    }
    *c = (struct conversation){.server = server,
                               .runner = runner,
                               .stream = {.from = -1, .to = -1},
                               .locked = -1,
                               .in_path = -1,
                               .watch = -1};
    if (runner) runner->reports = false; /* the compiler gets every failure, and info counts them */
    shmb_status status = shmb_conversation_open(c, path, protocol, detail, limit);
    if (status) shmb_conversation_free(c);
    else server->conversations[server->count++] = c;
    server->error.status = SHMB_OK; /* what is told from here on concerns compilers */
    return status;
}

shmb_status shmb_pipe_server_set_default(shmb_pipe_server *server, const char *text,
                                         shmb_dtype as) {
    const struct conversation *c = server->conversations[server->count - 1];
    server->error = (struct error){0};
    return shmb_frames_set_default(c->state, text, as, c->path, &server->error);
}

const char *shmb_pipe_server_error(const shmb_pipe_server *server) {
    return server ? server->error.message : shmb_strerror(SHMB_NO_MEMORY);
}

/* ---- Both ways ---- */

static bool forked(const shmb_pipe_server *server) {
    return server->count && server->conversations[0]->inherited.forked;
}

static void ring(const shmb_pipe_server *server) {
    int before = errno; /* a signal handler's caller may be about to look at its own */
    ssize_t n = write(server->bell, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* full: it rings */
    errno = before;
}

static void close_all(shmb_pipe_server *server) {
    for (int i = 0; i < server->count; i++) shmb_conversation_close(server->conversations[i]);
}

void shmb_pipe_server_close(shmb_pipe_server *server) {
    if (!server || forked(server)) return;
    bool ours = pthread_mutex_lock(&server->mutex) == 0;
    server->closed = true;
    if (ours && !server->polling) close_all(server); /* else whoever polls does it */
    if (ours) pthread_mutex_unlock(&server->mutex);
    shmb_pipe_server_stop(server);
}

void shmb_pipe_server_stop(shmb_pipe_server *server) {
    atomic_store(&server->stopped, 1);
    ring(server);
}

void shmb_pipe_server_info(shmb_pipe_server *server, int index, shmb_conversation_info *out) {
    *out = (shmb_conversation_info){.why = ""};
    if (index < 0 || index >= server->count) return;
    const struct conversation *c = server->conversations[index];
    bool ours = !forked(server) && pthread_mutex_lock(&server->mutex) == 0;
    *out = counted_in(c->state);
    if (ours) pthread_mutex_unlock(&server->mutex);
}

int shmb_pipe_server_talking(shmb_pipe_server *server) {
    int n = 0;
    if (forked(server)) return 0;
    bool ours = pthread_mutex_lock(&server->mutex) == 0;
    for (int i = 0; i < server->count; i++) n += server->conversations[i]->phase != QUIET;
    if (ours) pthread_mutex_unlock(&server->mutex);
    return n;
}

void shmb_pipe_server_flush(shmb_pipe_server *server) {
    if (forked(server)) return;
    if (pthread_mutex_lock(&server->mutex)) {
        ring(server);
        return;
    }
    shmb_conversations_note(server);
    for (int i = 0; i < server->count && !server->closed; i++)
        shmb_conversation_flush(server->conversations[i]);
    bool polling = server->polling;
    pthread_mutex_unlock(&server->mutex);
    if (polling) ring(server); /* it waits for other things now */
}

/* Each one's turn; how many questions have no answer yet. */
static int turns(shmb_pipe_server *server) {
    int asking = 0;
    shmb_conversations_note(server); /* the next compiler must not get the last one's answer */
    for (int i = 0; i < server->count; i++) {
        shmb_conversation_turn(server->conversations[i]);
        asking += server->conversations[i]->phase == ASKING;
    }
    return asking;
}

/* Waits until something happens to the pipes, without the mutex. False: a signal came. */
static bool wait_for_pipes(shmb_pipe_server *server, int64_t ns) {
    struct pollfd *ends = server->ends;
    nfds_t count = 1 + 2 * (nfds_t)server->count;
    ends[0] = (struct pollfd){.fd = server->bell, .events = POLLIN};
    for (int i = 0; i < server->count; i++) {
        const struct conversation *c = server->conversations[i];
        ends[1 + 2 * i] = (struct pollfd){
            .fd = c->stream.from, .events = c->phase == ASKING || c->stream.out.size ? 0 : POLLIN};
        ends[2 + 2 * i] =
            (struct pollfd){.fd = c->stream.out.size ? c->stream.to : -1, .events = POLLOUT};
    }
    server->polling = true;
    pthread_mutex_unlock(&server->mutex);
    struct timespec most = timespec_of(ns);
    int n = ppoll(ends, count, &most, NULL);
    bool signalled = n < 0 && errno == EINTR;
    pthread_mutex_lock(&server->mutex);
    server->polling = false;
    uint64_t rings;
    if (n > 0 && ends[0].revents && read(server->bell, &rings, sizeof rings) < 0)
        server->closed |= errno != EAGAIN;
    for (int i = 0; n > 0 && i < server->count; i++)
        if ((ends[1 + 2 * i].revents & (POLLHUP | POLLIN)) == POLLHUP)
            shmb_conversation_hung_up(server->conversations[i]);
    return !signalled;
}

/* Waits for the model: for its one conversation as the runner does, else a little, so that the
 * other conversations have their turn. */
static void wait_for_advice(shmb_pipe_server *server, int64_t left) {
    int64_t most = server->count == 1 ? SLICE_NS : MANY_NS;
    for (int i = 0; i < server->count; i++) {
        struct conversation *c = server->conversations[i];
        if (c->phase != ASKING) continue;
        int status = shmb_runner_wait(c->runner, shmb_clock_ns() + (left < most ? left : most));
        if (status != PENDING) shmb_conversation_answer(c, c->runner, (shmb_status)status);
        return;
    }
}

/* h: the host, if it is in this process, whose request ends the loop. */
static int64_t run(shmb_pipe_server *server, shmb_host *h, int64_t until) {
    while (!server->closed) {
        int asking = turns(server);
        shmb_status unanswered = server->error.status;
        server->error.status = SHMB_OK;
        if (unanswered && !h) return -(int64_t)unanswered;
        if (unanswered)
            fprintf(stderr,
                    "shmbridge: %s: this compiler waits for answers that cannot arrive: end it\n",
                    server->error.message);
        int64_t key = h ? shmb_host_poll(h) : -1, left = until - shmb_clock_ns();
        if (key >= 0) return key;
        if (atomic_exchange(&server->stopped, 0)) return -(int64_t)SHMB_INTERRUPTED;
        if (left <= 0) /* with all that the host has to tell besides */
            return h ? shmb_host_receive(h, 0) : -(int64_t)SHMB_TIMEOUT;
        if (asking && !h) wait_for_advice(server, left);
        else if (!wait_for_pipes(server, left) && h) return -(int64_t)SHMB_INTERRUPTED;
    }
    close_all(server);
    return -(int64_t)SHMB_CLOSED;
}

int64_t shmb_pipe_server_run(shmb_pipe_server *server, shmb_host *h, int64_t timeout_ns) {
    if (forked(server)) return -(int64_t)SHMB_FORKED;
    if (timeout_ns > SLICE_NS) timeout_ns = SLICE_NS;
    pthread_mutex_lock(&server->mutex);
    int64_t key = run(server, h, shmb_clock_ns() + (timeout_ns > 0 ? timeout_ns : 0));
    pthread_mutex_unlock(&server->mutex);
    return key;
}
