/* A host in C for the tests: what the Python package does with names, in its plainest form. */
#ifndef BRIDGE_H
#define BRIDGE_H

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "host.h"

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)
#define CHECK_STATUS(r, call, expected)                                                                              \
    do {                                                                                                             \
        int status_ = (int)(call);                                                                                   \
        if (status_ != (int)(expected)) {                                                                            \
            fprintf(stderr, "%s:%d: %s gave %d (%s), expected %d\n", __FILE__, __LINE__, #call, status_,              \
                    shmb_error_message(r), (int)(expected));                                                         \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

struct bridge {
    char name[64], session[33];
    shmb_plan plan;
    shmb_host *host;
};

static const shmb_plan small_plan = {.channels = 4, .slots = 2, .header_bytes = 4096, .request_bytes = 65536, .advice_bytes = 4096};

static void bridge_unlink(struct bridge *b) {
    char path[NAME_ROOM];
    shmb_segment_name(b->name, NULL, path);
    shm_unlink(path);
    for (int i = -1; i < (int)b->plan.channels; i++) {
        shmb_semaphore_name(b->session, i, path);
        sem_unlink(path);
    }
}

static void bridge_open(struct bridge *b, const char *name, shmb_plan plan, shmb_wait wait) {
    uint8_t session[16];
    char path[NAME_ROOM];
    snprintf(b->name, sizeof b->name, "%s-%d", name, (int)getpid());
    b->plan = plan;
    CHECK(getentropy(session, sizeof session) == 0);
    session_text(session, b->session);
    for (int i = -1; i < (int)plan.channels; i++) {
        shmb_semaphore_name(b->session, i, path);
        CHECK(sem_open(path, O_CREAT | O_EXCL, 0600, 0) != SEM_FAILED);
    }
    shmb_segment_name(b->name, NULL, path);
    int fd = shm_open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    uint64_t bytes = shmb_plan_bytes(&b->plan);
    CHECK(fd >= 0 && bytes && ftruncate(fd, (off_t)bytes) == 0 && shmb_peer_lock(fd, 0));
    shmb_status status = shmb_host_create(fd, &b->plan, session, wait, &b->host);
    if (status) fprintf(stderr, "%s\n", shmb_host_error(b->host, -1));
    CHECK(status == SHMB_OK);
}

static void bridge_close(struct bridge *b) {
    bridge_unlink(b);
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

/* Serves until closed: advice = the first feature's first element plus one, whatever its dtype. */
static inline void *bridge_serve(void *context) {
    struct bridge *b = context;
    for (;;) {
        int64_t key = shmb_host_receive(b->host, 100000000);
        if (key == -SHMB_CLOSED || key == -SHMB_INTERRUPTED) return NULL;
        if (key < 0) continue;
        const shmb_message *m = shmb_host_message(b->host, key);
        const shmb_tensor *t = m && m->count ? &m->tensors[0] : NULL;
        if (!t || t->size < 1) shmb_host_reply_i64(b->host, key, false, 0);
        else if (t->dtype == SHMB_FLOAT32) shmb_host_reply_f64(b->host, key, false, (double)*(const float *)t->data + 1);
        else if (t->dtype == SHMB_INT64) shmb_host_reply_i64(b->host, key, false, *(const int64_t *)t->data + 1);
        else if (t->dtype == SHMB_INT32) shmb_host_reply_i64(b->host, key, false, *(const int32_t *)t->data + 1);
        else shmb_host_reply_error(b->host, key, false, SHMB_MODEL, "unknown dtype", 13);
    }
}

struct server {
    struct bridge bridge;
    pthread_t thread;
};

static inline void server_start(struct server *s, const char *name, shmb_wait wait) {
    bridge_open(&s->bridge, name, small_plan, wait);
    CHECK(pthread_create(&s->thread, NULL, bridge_serve, &s->bridge) == 0);
}

static inline void server_stop(struct server *s) {
    shmb_host_wake(s->bridge.host);
    pthread_join(s->thread, NULL);
    bridge_close(&s->bridge);
}

#endif
