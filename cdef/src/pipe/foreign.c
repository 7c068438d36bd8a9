/* Compilers that speak a foreign protocol through named pipes, as runners of a bridge. A
 * conversation is a pair of pipes, with one compiler after another. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/order.h"
#include "pipe/conversation.h"
#include "pipe/frame.h"

enum { MANY_NS = 1000 * 1000 };

/* ---- Make ---- */

shmb_foreign *shmb_foreign_new(void) {
    shmb_foreign *foreign = calloc(1, sizeof *foreign);
    if (!foreign) return NULL;
    /* a Python SerDes runs with it locked, and may let a signal handler reply */
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&foreign->mutex, &kind);
    foreign->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    foreign->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (foreign->bell >= 0) return foreign;
    shmb_foreign_free(foreign);
    return NULL;
}

void shmb_foreign_free(shmb_foreign *foreign) {
    if (!foreign) return;
    for (int i = 0; i < foreign->count; i++) shmb_conversation_free(foreign->conversations[i]);
    free(foreign->conversations);
    free(foreign->ends);
    shmb_fork_close(&foreign->bell);
    shmb_fork_close(&foreign->events);
    free(foreign);
}

static bool foreign_make_room(shmb_foreign *foreign) {
    size_t count = (size_t)foreign->count + 1;
    void *conversations = realloc(foreign->conversations, count * sizeof *foreign->conversations);
    if (conversations) foreign->conversations = conversations;
    void *ends = realloc(foreign->ends, (1 + 2 * count) * sizeof *foreign->ends);
    if (ends) foreign->ends = ends;
    return conversations && ends;
}

shmb_status shmb_foreign_add(shmb_foreign *foreign, const char *path, const char *protocol,
                             const char *detail, size_t limit, shmb_runner *runner) {
    struct conversation *c = calloc(1, sizeof *c);
    foreign->error = (struct error){0};
    if (!c || !foreign_make_room(foreign)) {
        free(c);
        shmb_close(runner);
        return shmb_fail(&foreign->error, SHMB_NO_MEMORY, "no memory for a conversation");
    }
    *c = (struct conversation){.foreign = foreign,
                               .runner = runner,
                               .stream = {.from = -1, .to = -1},
                               .locked = -1,
                               .place = -1,
                               .watch = -1};
    if (runner) runner->reports = false; /* the compiler gets every failure, and info counts them */
    if (shmb_conversation_open(c, path, protocol, detail, limit)) shmb_conversation_free(c);
    else foreign->conversations[foreign->count++] = c;
    return foreign->error.status;
}

shmb_status shmb_foreign_set_default(shmb_foreign *foreign, const char *text, shmb_dtype as) {
    const struct conversation *c = foreign->conversations[foreign->count - 1];
    foreign->error = (struct error){0};
    return shmb_frames_set_default(c->state, text, as, c->path, &foreign->error);
}

void shmb_foreign_limit(shmb_foreign *foreign, int64_t decisions) {
    foreign->limited = true;
    foreign->left = decisions;
}

const char *shmb_foreign_error(const shmb_foreign *foreign) {
    return foreign ? foreign->error.message : shmb_strerror(SHMB_NO_MEMORY);
}

/* ---- Both ways ---- */

static bool forked(const shmb_foreign *foreign) {
    return foreign->count && foreign->conversations[0]->inherited.forked;
}

static void ring(const shmb_foreign *foreign) {
    int before = errno; /* a signal handler's caller may be about to look at its own */
    ssize_t n = write(foreign->bell, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* full: it rings */
    errno = before;
}

static void close_all(shmb_foreign *foreign) {
    for (int i = 0; i < foreign->count; i++) shmb_conversation_close(foreign->conversations[i]);
}

void shmb_foreign_close(shmb_foreign *foreign) {
    if (forked(foreign)) return;
    bool ours = pthread_mutex_lock(&foreign->mutex) == 0;
    foreign->closed = true;
    if (ours && !foreign->polling) close_all(foreign); /* else whoever polls does it */
    if (ours) pthread_mutex_unlock(&foreign->mutex);
    shmb_foreign_stop(foreign);
}

void shmb_foreign_stop(shmb_foreign *foreign) {
    atomic_store(&foreign->stopped, 1);
    ring(foreign);
}

void shmb_foreign_info(shmb_foreign *foreign, int index, shmb_conversation_info *out) {
    *out = (shmb_conversation_info){.why = ""};
    if (index < 0 || index >= foreign->count) return;
    const struct conversation *c = foreign->conversations[index];
    bool ours = !forked(foreign) && pthread_mutex_lock(&foreign->mutex) == 0;
    c->protocol->info(c->state, out);
    if (ours) pthread_mutex_unlock(&foreign->mutex);
}

int shmb_foreign_talking(shmb_foreign *foreign) {
    int n = 0;
    if (forked(foreign)) return 0;
    bool ours = pthread_mutex_lock(&foreign->mutex) == 0;
    for (int i = 0; i < foreign->count; i++) n += foreign->conversations[i]->talking;
    if (ours) pthread_mutex_unlock(&foreign->mutex);
    return n;
}

void shmb_foreign_flush(shmb_foreign *foreign) {
    if (forked(foreign)) return;
    if (pthread_mutex_lock(&foreign->mutex)) {
        ring(foreign);
        return;
    }
    shmb_conversations_note(foreign);
    for (int i = 0; i < foreign->count && !foreign->closed; i++)
        shmb_conversation_flush(foreign->conversations[i]);
    bool polling = foreign->polling;
    pthread_mutex_unlock(&foreign->mutex);
    if (polling) ring(foreign); /* it waits for other things now */
}

/* Each one's turn; how many questions have no answer yet. */
static int turns(shmb_foreign *foreign) {
    int asking = 0;
    bool owing = false;
    for (int i = 0; i < foreign->count; i++)
        owing |= foreign->conversations[i]->asking || foreign->conversations[i]->stream.out.size;
    if (owing)
        shmb_conversations_note(foreign); /* the next compiler must not get the last one's answer */
    for (int i = 0; i < foreign->count; i++) {
        shmb_conversation_turn(foreign->conversations[i]);
        asking += foreign->conversations[i]->asking;
    }
    return asking;
}

/* Waits until something happens to the pipes. The mutex is let go meanwhile. False: a signal came.
 */
static bool wait_for_pipes(shmb_foreign *foreign, int64_t ns) {
    struct pollfd *ends = foreign->ends;
    nfds_t count = 1 + 2 * (nfds_t)foreign->count;
    ends[0] = (struct pollfd){.fd = foreign->bell, .events = POLLIN};
    for (int i = 0; i < foreign->count; i++) {
        const struct conversation *c = foreign->conversations[i];
        ends[1 + 2 * i] = (struct pollfd){.fd = c->stream.from,
                                          .events = c->asking || c->stream.out.size ? 0 : POLLIN};
        ends[2 + 2 * i] =
            (struct pollfd){.fd = c->stream.out.size ? c->stream.to : -1, .events = POLLOUT};
    }
    foreign->polling = true;
    pthread_mutex_unlock(&foreign->mutex);
    struct timespec most = timespec_of(ns);
    int n = ppoll(ends, count, &most, NULL);
    bool signalled = n < 0 && errno == EINTR;
    pthread_mutex_lock(&foreign->mutex);
    foreign->polling = false;
    uint64_t rings;
    if (n > 0 && ends[0].revents && read(foreign->bell, &rings, sizeof rings) < 0)
        foreign->closed |= errno != EAGAIN;
    for (int i = 0; n > 0 && i < foreign->count; i++)
        if (ends[1 + 2 * i].revents & POLLHUP) foreign->conversations[i]->ended = true;
    if (n == 0) shmb_conversations_note(foreign); /* who has left in silence */
    return !signalled;
}

static int64_t receive(shmb_foreign *foreign, shmb_host *h, int64_t until) {
    for (;;) {
        if (foreign->closed) {
            close_all(foreign);
            return -(int64_t)SHMB_CLOSED;
        }
        turns(foreign);
        int64_t key = shmb_host_poll(h), left = until - shmb_clock_ns();
        if (key >= 0) return key;
        if (atomic_exchange(&foreign->stopped, 0)) return -(int64_t)SHMB_INTERRUPTED;
        if (left <= 0) return shmb_host_receive(h, 0); /* with all that it has to tell besides */
        if (!wait_for_pipes(foreign, left)) return -(int64_t)SHMB_INTERRUPTED;
    }
}

int64_t shmb_foreign_receive(shmb_foreign *foreign, shmb_host *h, int64_t timeout_ns) {
    if (forked(foreign)) return -(int64_t)SHMB_FORKED;
    if (timeout_ns > SLICE_NS) timeout_ns = SLICE_NS;
    pthread_mutex_lock(&foreign->mutex);
    int64_t key = receive(foreign, h, shmb_clock_ns() + (timeout_ns > 0 ? timeout_ns : 0));
    pthread_mutex_unlock(&foreign->mutex);
    return key;
}

/* Waits for the model: for its one conversation as the runner does, else a little, so that the
 * other conversations have their turn. */
static void wait_for_advice(shmb_foreign *foreign, int64_t left) {
    int64_t most = foreign->count == 1 ? SLICE_NS : MANY_NS;
    for (int i = 0; i < foreign->count; i++) {
        struct conversation *c = foreign->conversations[i];
        if (!c->asking) continue;
        int status = shmb_runner_wait(c->runner, shmb_clock_ns() + (left < most ? left : most));
        if (status != PENDING) shmb_conversation_answer(c, c->runner, (shmb_status)status);
        return;
    }
}

shmb_status shmb_foreign_run(shmb_foreign *foreign, int64_t timeout_ns) {
    int64_t until = shmb_clock_ns() + timeout_ns, left;
    shmb_status status = SHMB_TIMEOUT;
    pthread_mutex_lock(&foreign->mutex);
    while (!foreign->closed && (left = until - shmb_clock_ns()) > 0) {
        int asking = turns(foreign);
        if (atomic_exchange(&foreign->stopped, 0)) {
            status = SHMB_OK;
            break;
        }
        if (asking) wait_for_advice(foreign, left);
        else wait_for_pipes(foreign, left);
    }
    pthread_mutex_unlock(&foreign->mutex);
    return status;
}
