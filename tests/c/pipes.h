/* Named pipes for the tests: a pair below a directory of its own, a host that does as the test
 * says, and compilers' conversations whose bridge is served in the same thread. */
#ifndef PIPES_H
#define PIPES_H

#include <errno.h>
#include <poll.h>
#include <sys/file.h>

#include "bridge.h"
#include "pipe/frame.h"
#include "pipe/pipe_server.h"
#include "shmbridge/plugin.h"

enum { PATIENCE_MS = 5000 };

struct pipes {
    char directory[32], path[64], url[256];
    int to, from; /* the host's ends */
};

static inline char *pipes_name(const struct pipes *p, const char *end) {
    static _Thread_local char name[80];
    snprintf(name, sizeof name, "%s.%s", p->path, end);
    return name;
}

/* A SerDes of one uint8 vector as it is. */
static inline shmb_status raw_encode(void *context, shmb_side side, const shmb_tensor *fields,
                                     int64_t count, shmb_dtype want, shmb_sink *bytes) {
    (void)context, (void)side, (void)want;
    if (count != 1 || fields->dtype != SHMB_UINT8)
        return shmb_sink_fail(bytes, SHMB_MISMATCH, "expected one uint8 vector");
    void *to = shmb_sink_bytes(bytes, (size_t)fields->size);
    if (to) memcpy(to, fields->data, (size_t)fields->size);
    return SHMB_OK; /* the sink knows what is wrong */
}

static inline shmb_status raw_decode(void *context, shmb_side side, const void *bytes, size_t size,
                                     shmb_dtype want, shmb_sink *message) {
    (void)context, (void)side, (void)want;
    int64_t dims = (int64_t)size;
    void *to = shmb_sink_field(message, "advice", SHMB_UINT8, SHMB_TENSOR, 1, &dims, NULL);
    if (to) memcpy(to, bytes, size);
    return SHMB_OK; /* the sink knows what is wrong */
}

static const shmb_serdes raw_serdes = {
    .size = sizeof raw_serdes, .name = "raw", .encode = raw_encode, .decode = raw_decode};

/* query: "" or "&option=value". */
static inline void pipes_make(struct pipes *p, const char *query) {
    *p = (struct pipes){.directory = "/tmp/shmb-pipes-XXXXXX", .to = -1, .from = -1};
    CHECK(mkdtemp(p->directory));
    strcat(strcpy(p->path, p->directory), "/p");
    strcat(strcat(strcat(strcpy(p->url, "pipe://"), p->path), "?serdes=raw"), query);
    CHECK(shmb_register_serdes(&raw_serdes) == SHMB_OK);
    CHECK(mkfifo(pipes_name(p, "in"), 0600) == 0 && mkfifo(pipes_name(p, "out"), 0600) == 0);
}

static inline void pipes_listen(struct pipes *p) {
    p->to = open(pipes_name(p, "in"), O_RDWR | O_CLOEXEC);
    p->from = open(pipes_name(p, "out"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(p->to >= 0 && p->from >= 0);
}

static inline void pipes_hang_up(struct pipes *p) {
    if (p->to >= 0) close(p->to);
    if (p->from >= 0) close(p->from);
    p->to = p->from = -1;
}

static inline void pipes_remove(struct pipes *p) {
    pipes_hang_up(p);
    CHECK(unlink(pipes_name(p, "in")) == 0 && unlink(pipes_name(p, "out")) == 0 &&
          rmdir(p->directory) == 0);
}

static inline void pipes_await(int fd, short events) {
    struct pollfd end = {.fd = fd, .events = events};
    CHECK(poll(&end, 1, PATIENCE_MS) > 0);
}

static inline void pipes_read(const struct pipes *p, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        pipes_await(p->from, POLLIN);
        ssize_t n = read(p->from, (char *)to + done, bytes - done);
        CHECK(n > 0);
        done += (size_t)n;
    }
}

/* The next frame, into to[room]; its length. */
static inline size_t pipes_read_frame(const struct pipes *p, void *to, size_t room) {
    uint64_t length;
    pipes_read(p, &length, sizeof length);
    CHECK(length <= room);
    pipes_read(p, to, length);
    return length;
}

static inline void pipes_write(const struct pipes *p, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(p->to, (const char *)bytes + done, size - done);
        CHECK(n > 0);
        done += (size_t)n;
    }
}

static inline void pipes_write_frame(const struct pipes *p, uint64_t flag, const void *bytes,
                                     size_t size) {
    uint64_t length = size | flag;
    pipes_write(p, &length, sizeof length);
    pipes_write(p, bytes, size);
}

/* ---- The runner's side ---- */

static inline shmb_runner *pipes_connect(const struct pipes *p) { return runner_open(p->url); }

/* A runner of a host that listens from now on. */
static inline shmb_runner *pipes_meet(struct pipes *p) {
    pipes_listen(p);
    return pipes_connect(p);
}

/* A compiler that knows nothing but the two names. */
struct client {
    int from, to;
};

static inline struct client client_open(const struct pipes *p) {
    struct client c = {.from = open(pipes_name(p, "in"), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    c.to = open(pipes_name(p, "out"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(c.from >= 0 && c.to >= 0);
    return c;
}

static inline void client_close(const struct client *c) {
    close(c->from);
    close(c->to);
}

static inline void pipes_fill(shmb_runner *r, const char *text) {
    memcpy(feature_u8(r, "x", (int64_t)strlen(text)), text, strlen(text));
}

static inline shmb_status pipes_evaluate(shmb_runner *r, const char *text) {
    pipes_fill(r, text);
    return shmb_evaluate(r);
}

static inline void pipes_start(shmb_runner *r, const char *text) {
    pipes_fill(r, text);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
}

/* What evaluate returns, within the test's patience. */
static inline shmb_status pipes_result(shmb_runner *r) {
    int status = -1;
    for (int64_t until = shmb_clock_ns() + (int64_t)PATIENCE_MS * 1000000; status == -1;) {
        status = shmb_runner_continue(r);
        CHECK(shmb_clock_ns() < until);
    }
    return (shmb_status)status;
}

static inline void pipes_expect(shmb_runner *r, const char *text) {
    shmb_tensor t;
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
    CHECK(t.size == (int64_t)strlen(text) && memcmp(t.data, text, strlen(text)) == 0);
}

/* ---- Compilers of a host in this thread ---- */

struct compilers {
    struct bridge bridge;
    struct pipes pipes;
    shmb_pipe_server *server;
};

static inline void compilers_open(struct compilers *s, const char *name) {
    bridge_open(&s->bridge, name, small_plan, SHMB_WAIT_BLOCK);
    pipes_make(&s->pipes, "");
    CHECK((s->server = shmb_pipe_server_new(-1)));
    shmb_status status = shmb_pipe_server_add(s->server, s->pipes.path, "frames", "raw", 1 << 20,
                                              bridge_connect(&s->bridge, "wait=block"));
    if (status) fprintf(stderr, "%s\n", shmb_pipe_server_error(s->server));
    CHECK(!status);
}

static inline void compilers_close(struct compilers *s) {
    shmb_pipe_server_free(s->server);
    bridge_close(&s->bridge);
    pipes_remove(&s->pipes);
}

/* The next question's key; -1 when none comes within so long. */
static inline int64_t compilers_receive(struct compilers *s, int milliseconds) {
    for (int64_t until = shmb_clock_ns() + (int64_t)milliseconds * 1000000, left;
         (left = until - shmb_clock_ns()) > 0;) {
        int64_t key = shmb_pipe_server_run(s->server, s->bridge.host, left);
        if (key >= 0) return key;
        CHECK(key == -SHMB_TIMEOUT || key == -SHMB_INTERRUPTED);
    }
    return -1;
}

static inline shmb_status reply_bytes(shmb_host *h, int64_t key, int64_t size, const void *bytes) {
    shmb_tensor t = {.name = "advice",
                     .dtype = SHMB_UINT8,
                     .rank = 1,
                     .size = size,
                     .dims = &size,
                     .data = bytes};
    return shmb_host_reply(h, key, false, &t, 1);
}

/* Answers a question with its own bytes and one more. */
static inline void compilers_answer(struct compilers *s, int64_t key) {
    const shmb_message *m = shmb_host_message(s->bridge.host, key);
    CHECK(m && m->count == 1 && m->tensors[0].dtype == SHMB_UINT8);
    int64_t size = m->tensors[0].size + 1;
    char bytes[size];
    memcpy(bytes, m->tensors[0].data, (size_t)size - 1);
    bytes[size - 1] = '!';
    CHECK(reply_bytes(s->bridge.host, key, size, bytes) == SHMB_OK);
    shmb_pipe_server_flush(s->server);
}

/* The host's turn, then what the runner has. */
static inline shmb_status compilers_turn(struct compilers *s, shmb_runner *r) {
    int64_t key = compilers_receive(s, PATIENCE_MS);
    CHECK(key >= 0);
    compilers_answer(s, key);
    return pipes_result(r);
}

#endif
