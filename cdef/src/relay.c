/* Compilers that speak a foreign protocol through named pipes, as runners of a bridge. A line is a pair of pipes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "host.h"
#include "protocol.h"
#include "ring.h"
#include "serdes.h"
#include "stream.h"
#include "wait.h"

enum {
    MANY_NS = 1000 * 1000,
    PATIENCE_MS = 10,
    READS = 64 /* in a turn, so that others have theirs */
};

struct line {
    struct shmb_relay *relay;
    const struct protocol *protocol;
    void *state;
    shmb_runner *runner; /* may be NULL: no bridge */
    struct stream stream;
    int locked; /* reads PATH.out too: holds the lock and the pipe */
    int place;  /* PATH.in, without being an end of it */
    int watch;  /* of PATH.out, among the relay's events */
    bool talking, asking;
    bool deaf;  /* a conversation that cannot go on: what still comes is dropped */
    bool ended; /* nobody writes, and somebody did */
    bool left;  /* the compiler has closed its end; the next may have opened it */
    bool dirty; /* something was written that was perhaps not read */
    bool mixed; /* ... before the compiler left */
    struct inherited inherited;
};

struct shmb_relay {
    pthread_mutex_t mutex;
    struct line **lines;
    struct pollfd *ends; /* the bell, and two for each line */
    int count;
    int bell;   /* an eventfd */
    int events; /* an inotify; -1: does without */
    bool polling, closed;
    _Atomic int stopped;
    struct error error;
};

/* ---- Make ---- */

static void in_child(struct inherited *handle) {
    struct line *l = (struct line *)((char *)handle - offsetof(struct line, inherited));
    fork_close(&l->stream.from);
    fork_close(&l->stream.to);
    fork_close(&l->locked);
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
    if (*fd < 0) return fail_errno(e, name);
    if (fstat(*fd, &st) == 0 && S_ISFIFO(st.st_mode)) return SHMB_OK;
    return fail(e, SHMB_INVALID, "\"%.300s\" is in the way: expected a named pipe", name);
}

/* The compiler's end of PATH.in first: it may wait in open for a reader's counterpart, and does so in this order. */
static shmb_status open_line(struct line *l, const char *path, struct error *e) {
    if (open_pipe(path, "in", O_PATH, &l->place, e) ||
        open_pipe(path, "out", O_RDONLY | O_NONBLOCK, &l->locked, e))
        return e->status;
    if (flock(l->locked, LOCK_EX | LOCK_NB))
        return fail(
            e, SHMB_IN_USE,
            "a live host has the pipes \"%.300s\" already: close it, or choose another path", path);
    l->stream.to = open_again(l->place, O_RDWR);
    l->stream.from = open_again(l->locked, O_RDONLY);
    return l->stream.to < 0 || l->stream.from < 0 ? fail_errno(e, "cannot open the pipes")
                                                  : SHMB_OK;
}

/* What a compiler that is no more has left unread. */
static void drain(const struct line *l) {
    char bytes[4096];
    while (l->stream.to >= 0 && read(l->stream.to, bytes, sizeof bytes) > 0) continue;
}

static void close_line(struct line *l) {
    fork_forget(&l->inherited);
    stream_close(&l->stream);
    fork_close(&l->locked);
    fork_close(&l->place);
}

static void free_line(struct line *l) {
    close_line(l);
    shmb_close(l->runner);
    if (l->state) l->protocol->free(l->state);
    free(l);
}

static shmb_status make_protocol(struct line *l, const char *protocol, const char *detail,
                                 size_t limit, struct error *e) {
    if (strcmp(protocol, "frames") == 0) {
        const shmb_serdes *serdes = serdes_choose(detail, e);
        if (!serdes) return e->status;
        l->protocol = &frames_protocol;
        l->state = frames_new(serdes, limit);
    } else if (strcmp(protocol, "llvm") == 0) {
        l->protocol = &llvm_protocol;
        l->state = llvm_new(detail, e);
    } else return fail(e, SHMB_INVALID, "protocol \"%.60s\": expected frames or llvm", protocol);
    return l->state || e->status ? e->status
                                 : fail(e, SHMB_NO_MEMORY, "no memory for a conversation");
}

shmb_relay *shmb_relay_new(void) {
    shmb_relay *relay = calloc(1, sizeof *relay);
    if (!relay) return NULL;
    pthread_mutexattr_t
        kind; /* a Python SerDes runs with it locked, and may let a signal handler reply */
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&relay->mutex, &kind);
    relay->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    relay->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (relay->bell >= 0) return relay;
    shmb_relay_free(relay);
    return NULL;
}

void shmb_relay_free(shmb_relay *relay) {
    if (!relay) return;
    for (int i = 0; i < relay->count; i++) free_line(relay->lines[i]);
    free(relay->lines);
    free(relay->ends);
    fork_close(&relay->bell);
    fork_close(&relay->events);
    free(relay);
}

static bool make_room(shmb_relay *relay) {
    size_t count = (size_t)relay->count + 1;
    void *lines = realloc(relay->lines, count * sizeof *relay->lines);
    if (lines) relay->lines = lines;
    void *ends = realloc(relay->ends, (1 + 2 * count) * sizeof *relay->ends);
    if (ends) relay->ends = ends;
    return lines && ends;
}

static shmb_status make_line(shmb_relay *relay, struct line *l, const char *path,
                             const char *protocol, const char *detail, size_t limit) {
    struct error *e = &relay->error;
    char out[4096];
    if (make_protocol(l, protocol, detail, limit, e)) return e->status;
    fork_hold();
    if (!open_line(l, path, e)) fork_watch(&l->inherited, in_child);
    fork_let_go();
    if (e->status) return e->status;
    snprintf(out, sizeof out, "/proc/self/fd/%d", l->locked);
    l->watch =
        relay->events < 0 ? -1 : inotify_add_watch(relay->events, out, IN_MODIFY | IN_CLOSE_WRITE);
    drain(l);
    return SHMB_OK;
}

shmb_status shmb_relay_add(shmb_relay *relay, const char *path, const char *protocol,
                           const char *detail, size_t limit, shmb_runner *runner) {
    struct line *l = calloc(1, sizeof *l);
    relay->error = (struct error){0};
    if (!l || !make_room(relay)) {
        free(l);
        shmb_close(runner);
        return fail(&relay->error, SHMB_NO_MEMORY, "no memory for a line");
    }
    *l = (struct line){.relay = relay,
                       .runner = runner,
                       .stream = {.from = -1, .to = -1},
                       .locked = -1,
                       .place = -1,
                       .watch = -1};
    if (make_line(relay, l, path, protocol, detail, limit)) free_line(l);
    else relay->lines[relay->count++] = l;
    return relay->error.status;
}

const char *shmb_relay_error(const shmb_relay *relay) {
    return relay ? relay->error.message : shmb_strerror(SHMB_NO_MEMORY);
}

/* ---- A conversation ends ---- */

/* A pipe that had a writer says so for ever; a new open file of it begins anew. Without descriptors there is none, and nothing
 * to poll, until a later turn gets one. */
static void open_from_anew(struct line *l) {
    fork_hold();
    fork_close(&l->stream.from);
    if (l->stream.to < 0) l->stream.to = open_again(l->place, O_RDWR);
    if (l->stream.to >= 0) l->stream.from = open_again(l->locked, O_RDONLY);
    fork_let_go();
}

/* Forgets it: its question, its answer, what it did not read, and the first `old` bytes of what was read. */
static void end(struct line *l, size_t old) {
    if (l->asking) shmb_runner_abandon(l->runner, SHMB_RUNNER_GONE);
    else shmb_discard(l->runner);
    l->protocol->end(l->state);
    stream_take(&l->stream, old);
    l->stream.out.size = l->stream.sent = 0;
    drain(l);
    open_from_anew(l);
    l->talking = l->asking = l->deaf = l->ended = l->left = l->mixed = false;
}

/* It cannot go on. The compiler is told so if that can be: it sees an end of file until it has closed its own. */
static void refuse(struct line *l) {
    l->deaf = true;
    if (!l->protocol->resumes) fork_close(&l->stream.to);
}

static int feed(struct line *l, shmb_dtype *want, struct error *e) {
    size_t used = 0;
    int result = l->protocol->feed(l->state, l->stream.in.data, l->stream.in.size, &used, l->runner,
                                   want, e);
    stream_take(&l->stream, used);
    return result;
}

/* In the order in which it happened. */
static void note_events(shmb_relay *relay) {
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t bytes;
    while (relay->events >= 0 && (bytes = read(relay->events, buffer, sizeof buffer)) > 0) {
        const struct inotify_event *event;
        for (char *at = buffer; at < buffer + bytes; at += sizeof *event + event->len) {
            event = (const struct inotify_event *)at;
            struct line *l = NULL;
            for (int i = 0; i < relay->count; i++)
                if (relay->lines[i]->watch == event->wd) l = relay->lines[i];
            if (!l) continue;
            if (event->mask & IN_MODIFY) l->dirty |= !l->asking || l->left;
            if (event->mask & IN_CLOSE_WRITE) {
                l->left = true;
                l->mixed |= l->dirty;
            }
        }
    }
}

/* The compiler left, and the next one may be there already. Whose are the bytes behind the first `old` that were read? One
 * that waits for its answer sends nothing, and one that has it has sent nothing unless the pipe is dirty. */
static void follow_leaving(struct line *l, size_t old) {
    enum flow flow = ENDED;
    bool mixed = l->mixed && !l->asking;
    if (mixed && l->protocol->resumes) {
        l->left = l->mixed = false;
        return;
    }
    size_t lost = l->stream.in.size - old;
    if (mixed) stream_take(&l->stream, l->stream.in.size);
    for (int i = 0; mixed && i < READS && (flow = stream_read(&l->stream)) == MOVED; i++) {
        lost += l->stream.in.size;
        stream_take(&l->stream, l->stream.in.size);
    }
    end(l, mixed ? 0 : old);
    if (mixed && lost && flow != ENDED)
        refuse(l); /* the next one's bytes are lost among the last one's */
}

/* ---- A conversation goes on ---- */

static void answer(struct line *l, shmb_runner *r, shmb_status status) {
    l->asking = l->dirty = false;
    if (l->protocol->answer(l->state, r, status, &l->stream.out)) refuse(l);
}

/* Has the question its answer? */
static bool collect(struct line *l) {
    int status = runner_wait(l->runner, 0);
    if (status == PENDING) return false;
    answer(l, l->runner, (shmb_status)status);
    return true;
}

static void ask(struct line *l, shmb_dtype want) {
    shmb_status status = l->runner ? shmb_runner_start(l->runner, want) : SHMB_NO_HOST;
    if (status) answer(l, l->runner, status);
    else l->asking = true;
}

static void give_up(struct line *l, const struct error *e) {
    if (!l->protocol->resumes) {
        if (l->runner) l->runner->error = *e;
        answer(l, l->runner, e->status);
        stream_write(&l->stream);
    }
    refuse(l);
}

/* Is there a question (or an answer without one) in what has come? */
static bool understand(struct line *l) {
    shmb_dtype want = SHMB_ANY;
    struct error e = {0};
    if (l->deaf) stream_take(&l->stream, l->stream.in.size);
    if (!l->stream.in.size) return false;
    int result = feed(l, &want, &e);
    if (result == ASK) ask(l, want);
    else if (result == GIVEN) answer(l, NULL, SHMB_OK);
    else if (result != MORE) give_up(l, &e);
    return result == ASK || result == GIVEN;
}

/* Reads until there is a question: false when there is none yet. */
static bool listen(struct line *l) {
    for (int i = 0; !understand(l); i++) {
        size_t old = l->stream.in.size;
        enum flow flow = stream_read(&l->stream);
        if (flow == MOVED)
            note_events(l->relay); /* before the bytes are taken for this conversation's */
        if (l->left) follow_leaving(l, old);
        else if (flow == STUCK) l->dirty = false;
        else if (flow == UNABLE) refuse(l);
        else if (flow == ENDED && (l->talking || l->ended || l->deaf)) end(l, old);
        l->talking |= flow == MOVED || flow == STUCK;
        if (flow != MOVED || i == READS) return false;
    }
    return true;
}

/* Slow readers get a moment: who replies may not come back to the pipes for long. */
static bool say(struct line *l) {
    if (!l->stream.out.size) return true;
    if (l->stream.to < 0) return l->stream.out.size = l->stream.sent = 0, true;
    while (stream_write(&l->stream) != MOVED) {
        struct pollfd to = {.fd = l->stream.to, .events = POLLOUT};
        if (poll(&to, 1, PATIENCE_MS) <= 0) return false;
    }
    return true;
}

static void turn(struct line *l) {
    if (l->stream.from < 0 && l->locked >= 0) open_from_anew(l);
    if (l->stream.from < 0) return;
    if (l->left) follow_leaving(l, l->stream.in.size);
    if (l->ended && (l->asking || l->stream.out.size)) end(l, l->stream.in.size);
    while ((!l->asking || collect(l)) && say(l) && listen(l)) continue;
}

/* ---- Both ways ---- */

static bool forked(const shmb_relay *relay) {
    return relay->count && relay->lines[0]->inherited.forked;
}

static void ring(const shmb_relay *relay) {
    int before = errno; /* a signal handler's caller may be about to look at its own */
    ssize_t n = write(relay->bell, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* full: it rings */
    errno = before;
}

static void close_lines(shmb_relay *relay) {
    for (int i = 0; i < relay->count; i++) close_line(relay->lines[i]);
}

void shmb_relay_close(shmb_relay *relay) {
    if (forked(relay)) return;
    bool ours = pthread_mutex_lock(&relay->mutex) == 0;
    relay->closed = true;
    if (ours && !relay->polling) close_lines(relay); /* else whoever polls does it */
    if (ours) pthread_mutex_unlock(&relay->mutex);
    shmb_relay_stop(relay);
}

void shmb_relay_stop(shmb_relay *relay) {
    atomic_store(&relay->stopped, 1);
    ring(relay);
}

void shmb_relay_info(shmb_relay *relay, int line, shmb_line_info *out) {
    *out = (shmb_line_info){.why = ""};
    if (line < 0 || line >= relay->count) return;
    const struct line *l = relay->lines[line];
    bool ours = !forked(relay) && pthread_mutex_lock(&relay->mutex) == 0;
    if (l->protocol->info) l->protocol->info(l->state, out);
    if (ours) pthread_mutex_unlock(&relay->mutex);
}

int shmb_relay_talking(shmb_relay *relay) {
    int n = 0;
    if (forked(relay)) return 0;
    bool ours = pthread_mutex_lock(&relay->mutex) == 0;
    for (int i = 0; i < relay->count; i++) n += relay->lines[i]->talking;
    if (ours) pthread_mutex_unlock(&relay->mutex);
    return n;
}

void shmb_relay_flush(shmb_relay *relay) {
    if (forked(relay)) return;
    if (pthread_mutex_lock(&relay->mutex)) {
        ring(relay);
        return;
    }
    note_events(relay);
    for (int i = 0; i < relay->count && !relay->closed; i++) {
        struct line *l = relay->lines[i];
        if (l->asking && !l->left && collect(l)) say(l);
    }
    bool polling = relay->polling;
    pthread_mutex_unlock(&relay->mutex);
    if (polling) ring(relay); /* it waits for other things now */
}

/* Every line's turn; how many questions have no answer yet. */
static int turns(shmb_relay *relay) {
    int asking = 0;
    note_events(relay);
    for (int i = 0; i < relay->count; i++) {
        turn(relay->lines[i]);
        asking += relay->lines[i]->asking;
    }
    return asking;
}

/* Waits until something happens to the pipes. The mutex is let go meanwhile. False: a signal came. */
static bool wait_for_pipes(shmb_relay *relay, int64_t ns) {
    struct pollfd *ends = relay->ends;
    nfds_t count = 1 + 2 * (nfds_t)relay->count;
    ends[0] = (struct pollfd){.fd = relay->bell, .events = POLLIN};
    for (int i = 0; i < relay->count; i++) {
        const struct line *l = relay->lines[i];
        ends[1 + 2 * i] = (struct pollfd){.fd = l->stream.from,
                                          .events = l->asking || l->stream.out.size ? 0 : POLLIN};
        ends[2 + 2 * i] =
            (struct pollfd){.fd = l->stream.out.size ? l->stream.to : -1, .events = POLLOUT};
    }
    relay->polling = true;
    pthread_mutex_unlock(&relay->mutex);
    int n = ppoll(ends, count,
                  &(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    bool signalled = n < 0 && errno == EINTR;
    pthread_mutex_lock(&relay->mutex);
    relay->polling = false;
    uint64_t rings;
    if (n > 0 && ends[0].revents && read(relay->bell, &rings, sizeof rings) < 0)
        relay->closed |= errno != EAGAIN;
    for (int i = 0; n > 0 && i < relay->count; i++)
        if (ends[1 + 2 * i].revents & POLLHUP) relay->lines[i]->ended = true;
    return !signalled;
}

static int64_t receive(shmb_relay *relay, shmb_host *h, int64_t until) {
    for (;;) {
        if (relay->closed) return close_lines(relay), -(int64_t)SHMB_CLOSED;
        turns(relay);
        int64_t key = shmb_host_poll(h), left = until - clock_ns();
        if (key >= 0) return key;
        if (atomic_exchange(&relay->stopped, 0)) return -(int64_t)SHMB_INTERRUPTED;
        if (left <= 0) return shmb_host_receive(h, 0); /* with all that it has to tell besides */
        if (!wait_for_pipes(relay, left)) return -(int64_t)SHMB_INTERRUPTED;
    }
}

int64_t shmb_relay_receive(shmb_relay *relay, shmb_host *h, int64_t timeout_ns) {
    if (forked(relay)) return -(int64_t)SHMB_FORKED;
    if (timeout_ns > SLICE_NS) timeout_ns = SLICE_NS;
    pthread_mutex_lock(&relay->mutex);
    int64_t key = receive(relay, h, clock_ns() + (timeout_ns > 0 ? timeout_ns : 0));
    pthread_mutex_unlock(&relay->mutex);
    return key;
}

/* Waits for the model: for its one line as the runner does, else a little, so that the other lines have their turn. */
static void wait_for_advice(shmb_relay *relay, int64_t left) {
    int64_t most = relay->count == 1 ? SLICE_NS : MANY_NS;
    for (int i = 0; i < relay->count; i++) {
        struct line *l = relay->lines[i];
        if (!l->asking) continue;
        int status = runner_wait(l->runner, clock_ns() + (left < most ? left : most));
        if (status != PENDING) answer(l, l->runner, (shmb_status)status);
        return;
    }
}

shmb_status shmb_relay_run(shmb_relay *relay, int64_t timeout_ns) {
    int64_t until = clock_ns() + timeout_ns, left;
    shmb_status status = SHMB_TIMEOUT;
    pthread_mutex_lock(&relay->mutex);
    while (!relay->closed && (left = until - clock_ns()) > 0) {
        int asking = turns(relay);
        if (atomic_exchange(&relay->stopped, 0)) {
            status = SHMB_OK;
            break;
        }
        if (asking) wait_for_advice(relay, left);
        else wait_for_pipes(relay, left);
    }
    pthread_mutex_unlock(&relay->mutex);
    return status;
}
