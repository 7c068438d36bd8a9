/* A host in C for the tests: what the Python package does with names, in its plainest form. */
#ifndef BRIDGE_H
#define BRIDGE_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "runner/nonblocking.h"
#include "segment/attach.h"
#include "segment/inspect.h"
#include "segment/names.h"
#include "segment/peer.h"
#include "segment/wait.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include "one_mapping.h"
#define THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(THREAD_SANITIZER)
#include "one_mapping.h"
#define THREAD_SANITIZER 1
#endif

static inline uint8_t *feature_u8(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_UINT8, 1, &n);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_GAVE(call, expected, why)                                                            \
    do {                                                                                           \
        int status_ = (int)(call);                                                                 \
        if (status_ != (int)(expected)) {                                                          \
            fprintf(stderr, "%s:%d: %s gave %d (%s), expected %d\n", __FILE__, __LINE__, #call,    \
                    status_, (why), (int)(expected));                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_STATUS(r, call, expected) CHECK_GAVE(call, expected, shmb_error_message(r))

/* Texts to go through, until NULL. */
#define TEXTS(...)                                                                                 \
    (const char *const[]) { __VA_ARGS__, NULL }
#define CHECK_TEXT(found, text) check_text(__FILE__, __LINE__, found, text)
/* A call of the runner fails so, and its message has this in it. */
#define CHECK_FAILS(r, call, expected, text)                                                       \
    do {                                                                                           \
        CHECK_STATUS(r, call, expected);                                                           \
        CHECK_TEXT(shmb_error_message(r), text);                                                   \
    } while (0)

static inline void check_text(const char *file, int line, const char *found, const char *text) {
    if (strstr(found, text)) return;
    fprintf(stderr, "%s:%d: expected \"…%s…\", found \"%s\"\n", file, line, text, found);
    exit(1);
}

struct bridge {
    char name[64], session[33];
    shmb_plan plan;
    shmb_host *host;
};

static const shmb_plan small_plan = {
    .channels = 4, .slots = 2, .header_bytes = 4096, .request_bytes = 65536, .advice_bytes = 4096};

static inline shmb_stats stats(const shmb_runner *r) {
    shmb_stats s = {.size = sizeof s};
    shmb_runner_stats(r, &s);
    return s;
}

static inline void expect_equal(const shmb_tensor *a, const shmb_tensor *b) {
    if (a->dtype != b->dtype || a->kind != b->kind || a->rank != b->rank || a->size != b->size)
        fprintf(stderr, "expected %s of kind %d, rank %d, %lld elements; found %s, %d, %d, %lld\n",
                shmb_dtype_name(a->dtype), (int)a->kind, a->rank, (long long)a->size,
                shmb_dtype_name(b->dtype), (int)b->kind, b->rank, (long long)b->size);
    CHECK(a->dtype == b->dtype && a->kind == b->kind && a->rank == b->rank && a->size == b->size &&
          (!a->offsets) == (!b->offsets));
    size_t dims = (size_t)a->rank + (a->offsets != NULL);
    CHECK(!dims || memcmp(a->dims, b->dims, dims * sizeof *a->dims) == 0);
    CHECK(!a->offsets ||
          memcmp(a->offsets, b->offsets, ((size_t)a->dims[0] + 1) * sizeof *a->offsets) == 0);
    CHECK(!a->size || memcmp(a->data, b->data, (size_t)a->size * shmb_dtype_size(a->dtype)) == 0);
}

static inline shmb_runner *runner_open(const char *url) {
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
    return r;
}

/* The advice for what was filled; INT64_MIN, and the reason on stderr, where there is none. */
static inline int64_t evaluated(shmb_runner *r) {
    int64_t advice;
    shmb_status status = shmb_evaluate_i64(r, &advice);
    if (status) fprintf(stderr, "status %d: %s\n", status, shmb_error_message(r));
    return status ? INT64_MIN : advice;
}

/* The advice for a number, which is one more where bridge_answer gives it. */
static inline int64_t asked(shmb_runner *r, int64_t x) {
    shmb_set_i64(r, "x", x);
    return evaluated(r);
}

/* Asks with a number: what evaluate returns, or the ticket of the question. */
static inline shmb_status evaluate_x(shmb_runner *r, int64_t x) {
    shmb_set_i64(r, "x", x);
    return shmb_evaluate(r);
}

static inline shmb_ticket send_x(shmb_runner *r, int64_t x) {
    shmb_set_i64(r, "x", x);
    return shmb_send(r, SHMB_INT64);
}

/* A runner that does not open says why. */
static inline void open_fails(const char *url, const shmb_options *options, shmb_status expected,
                              const char *text) {
    shmb_runner *r;
    CHECK_FAILS(r, shmb_open(url, options, &r), expected, text);
    shmb_close(r);
}

/* Removes what a bridge has left below /dev/shm; true when there was something. */
static inline bool bridge_clean(const char *name) {
    char path[NAME_ROOM];
    shmb_segment_path(name, NULL, path);
    return unlink(path) == 0;
}

static inline void bridge_open_session(struct bridge *b, const char *name, shmb_plan plan,
                                       shmb_wait wait, const uint8_t *session) {
    char path[NAME_ROOM];
    snprintf(b->name, sizeof b->name, "%s-%d", name, (int)getpid());
    b->plan = plan;
    shmb_session_text(session, b->session);
    shmb_segment_path(b->name, b->session, path);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    uint64_t bytes = shmb_plan_bytes(&b->plan);
    CHECK(fd >= 0 && bytes && ftruncate(fd, (off_t)bytes) == 0 && shmb_peer_take(fd, 0));
    shmb_status status = shmb_host_create(fd, &b->plan, session, wait, &b->host);
    if (status) fprintf(stderr, "%s\n", shmb_host_error(b->host, -1));
    CHECK(status == SHMB_OK);
    char to[NAME_ROOM];
    shmb_segment_path(b->name, NULL, to);
#ifdef THREAD_SANITIZER
    /* it does not know that rename orders what came before it */
    pthread_mutex_lock(&mappings_mutex);
    pthread_mutex_unlock(&mappings_mutex);
#endif
    CHECK(rename(path, to) == 0);
}

/* Its segment as another program has it, until shmb_segment_detach. */
static inline struct segment bridge_segment(const struct bridge *b) {
    char path[NAME_ROOM];
    struct segment s;
    struct error e = {0};
    shmb_segment_path(b->name, NULL, path);
    CHECK(shmb_segment_read(open(path, O_RDWR | O_CLOEXEC), b->name, &s, &e));
    return s;
}

static inline uint32_t segment_generation(const struct segment *s, uint32_t channel) {
    return (uint32_t)(atomic_load(&shmb_segment_runner_line(s, channel)->claim) >> 8);
}

static inline void bridge_open(struct bridge *b, const char *name, shmb_plan plan, shmb_wait wait) {
    uint8_t session[SESSION_BYTES];
    CHECK(getentropy(session, sizeof session) == 0);
    bridge_open_session(b, name, plan, wait, session);
}

static inline void bridge_close(struct bridge *b) {
    bridge_clean(b->name);
    shmb_host_free(b->host);
}

/* The next request's key; fails the test after five seconds without one. */
static inline int64_t bridge_receive(struct bridge *b) {
    for (int i = 0; i < 50; i++) {
        int64_t key = shmb_host_receive(b->host, 100000000);
        if (key >= 0) return key;
        CHECK(key == -SHMB_TIMEOUT || key == -SHMB_INTERRUPTED);
    }
    CHECK(!"a request within five seconds");
    return -1;
}

/* Answers with one number. */
static inline shmb_status reply_number(shmb_host *h, int64_t key, bool keep, shmb_dtype dtype,
                                       const void *value) {
    shmb_tensor t = {.name = "advice", .dtype = dtype, .size = 1, .data = value};
    return shmb_host_reply(h, key, keep, &t, 1);
}

static inline shmb_status reply_i64(shmb_host *h, int64_t key, bool keep, int64_t value) {
    return reply_number(h, key, keep, SHMB_INT64, &value);
}

static inline shmb_status reply_f64(shmb_host *h, int64_t key, bool keep, double value) {
    return reply_number(h, key, keep, SHMB_FLOAT64, &value);
}

/* Sends every feature of a request back as advice, under its own name. */
static inline void bridge_echo(struct bridge *b, int64_t key, bool keep) {
    const shmb_message *m = shmb_host_message(b->host, key);
    CHECK(m);
    shmb_host_reply(b->host, key, keep, m->tensors, m->count);
}

/* Serves until closed: advice = the first feature's first element plus one, whatever its dtype; all
 * of it when the first feature is called "echo". */
static inline void bridge_answer(struct bridge *b, int64_t key) {
    const shmb_message *m = shmb_host_message(b->host, key);
    const shmb_tensor *t = m && m->count ? &m->tensors[0] : NULL;
    if (t && strcmp(t->name, "echo") == 0) bridge_echo(b, key, false);
    else if (!t || t->size < 1) reply_i64(b->host, key, false, 0);
    else if (t->dtype == SHMB_FLOAT32)
        reply_f64(b->host, key, false, (double)*(const float *)t->data + 1);
    else if (t->dtype == SHMB_INT64) reply_i64(b->host, key, false, *(const int64_t *)t->data + 1);
    else if (t->dtype == SHMB_INT32) reply_i64(b->host, key, false, *(const int32_t *)t->data + 1);
    else shmb_host_reply_error(b->host, key, false, SHMB_MODEL, "unknown dtype", 13);
}

static inline void *bridge_serve(void *context) {
    struct bridge *b = context;
    for (;;) {
        int64_t key = shmb_host_receive(b->host, 100000000);
        if (key == -SHMB_CLOSED || key == -SHMB_INTERRUPTED) return NULL;
        if (key >= 0) bridge_answer(b, key);
    }
}

/* ---- A host in a thread of its own ---- */

static inline pthread_t thread_start(void *(*function)(void *), void *context) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, context) == 0);
    return thread;
}

struct server {
    struct bridge bridge;
    pthread_t thread;
};

static inline void server_run(struct server *s) {
    CHECK(pthread_create(&s->thread, NULL, bridge_serve, &s->bridge) == 0);
}

static inline void server_halt(struct server *s) {
    shmb_host_wake(s->bridge.host);
    pthread_join(s->thread, NULL);
}

static inline void server_start(struct server *s, const char *name, shmb_wait wait) {
    bridge_open(&s->bridge, name, small_plan, wait);
    server_run(s);
}

static inline void server_stop(struct server *s) {
    server_halt(s);
    bridge_close(&s->bridge);
}

/* ---- Host and runner by turns in one thread ---- */

struct opening {
    char url[1024];
    shmb_runner *runner;
    shmb_status status;
    _Atomic int done;
};

static inline void *opening_run(void *context) {
    struct opening *o = context;
    o->status = shmb_open(o->url, NULL, &o->runner);
    atomic_store(&o->done, 1);
    return NULL;
}

/* Opens a runner while this thread lets the host accept it. query: "" or what follows '?'. */
static inline shmb_runner *bridge_connect(struct bridge *b, const char *query) {
    struct opening o = {.status = SHMB_OK};
    snprintf(o.url, sizeof o.url, "shm://%s?%s", b->name, query);
    pthread_t thread = thread_start(opening_run, &o);
    while (!atomic_load(&o.done)) CHECK(shmb_host_receive(b->host, 1000000) < 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(o.runner, o.status, SHMB_OK);
    return o.runner;
}

/* Sends what was filled and returns the host's key of it. */
static inline int64_t bridge_ask(struct bridge *b, shmb_runner *r, shmb_dtype want) {
    CHECK_STATUS(r, shmb_runner_start(r, want), SHMB_OK);
    return bridge_receive(b);
}

static inline int64_t bridge_ask_x(struct bridge *b, shmb_runner *r, int64_t x, shmb_dtype want) {
    shmb_set_i64(r, "x", x);
    return bridge_ask(b, r, want);
}

/* What evaluate returns once the host has replied. */
static inline shmb_status bridge_result(shmb_runner *r) {
    int status;
    while ((status = shmb_runner_continue(r)) == -1) continue;
    return (shmb_status)status;
}

/* Sends what was filled, has the host answer as ever, and returns what evaluate does. */
static inline shmb_status bridge_turn(struct bridge *b, shmb_runner *r, shmb_dtype want) {
    bridge_answer(b, bridge_ask(b, r, want));
    return bridge_result(r);
}

/* Asks with a number, and gets advice. */
static inline void bridge_asked(struct bridge *b, shmb_runner *r, int64_t x) {
    shmb_set_i64(r, "x", x);
    CHECK_STATUS(r, bridge_turn(b, r, SHMB_INT64), SHMB_OK);
}

/* ---- Interrupts ---- */

static shmb_runner *interrupted;

static inline void interrupt_from_handler(int number) {
    (void)number;
    shmb_interrupt(interrupted);
}

static inline void *interrupt_from_thread(void *unused) {
    usleep(30000);
    shmb_interrupt(interrupted);
    return unused;
}

/* What evaluate returns that a signal handler, or else another thread, interrupts soon. */
static inline shmb_status evaluate_interrupted(shmb_runner *r, bool by_signal) {
    pthread_t thread;
    interrupted = r;
    signal(SIGALRM, interrupt_from_handler);
    if (by_signal) ualarm(30000, 0);
    else CHECK(pthread_create(&thread, NULL, interrupt_from_thread, NULL) == 0);
    shmb_status status = shmb_evaluate(r);
    if (!by_signal) pthread_join(thread, NULL);
    return status;
}

/* ---- A host in a process of its own ---- */

/* Forks a host that serves until it is killed, and waits until it stands; its bridge's name goes to
 * name[64]. */
static inline pid_t host_process(const char *prefix, char *name, void (*serve)(struct bridge *)) {
    int stands[2];
    char byte = 0;
    CHECK(pipe(stands) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct bridge b;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bridge_open(&b, prefix, small_plan, SHMB_WAIT_DEFAULT);
        CHECK(write(stands[1], &byte, 1) == 1 && close(stands[0]) == 0 && close(stands[1]) == 0);
        if (serve) serve(&b);
        else bridge_serve(&b);
        bridge_close(&b);
        _exit(0);
    }
    snprintf(name, 64, "%s-%d", prefix, (int)pid);
    CHECK(close(stands[1]) == 0 && read(stands[0], &byte, 1) == 1 && close(stands[0]) == 0);
    return pid;
}

static inline void process_kill(pid_t pid) {
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* The child's exit status; 128 + the signal when one ended it. */
static inline int process_wait(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
