#include "echo_host.h"

#include "bridge.h"

struct echo_host {
    struct bridge bridge;
    pthread_t thread;
};

static void echo(shmb_host *h, int64_t key, const shmb_message *m) {
    if (shmb_host_reply_begin(h, key)) return;
    for (int64_t i = 0; i < m->count; i++) {
        const shmb_tensor *t = &m->tensors[i];
        int64_t *offsets = NULL;
        void *to =
            shmb_host_reply_add(h, key, t->name, t->dtype, t->kind, t->rank, t->dims, &offsets);
        size_t bytes = (size_t)t->size * shmb_dtype_size(t->dtype);
        if (to && bytes) memcpy(to, t->data, bytes);
        if (offsets && t->offsets)
            memcpy(offsets, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *offsets);
    }
    shmb_status status = shmb_host_reply_send(h, key, false);
    if (status) shmb_host_reply_error(h, key, false, status, "could not echo", 14);
}

static void *serve(void *context) {
    shmb_host *h = ((struct echo_host *)context)->bridge.host;
    for (;;) {
        int64_t key = shmb_host_receive(h, 100000000);
        if (key == -SHMB_CLOSED || key == -SHMB_INTERRUPTED) return NULL;
        const shmb_message *m = key < 0 ? NULL : shmb_host_message(h, key);
        if (!m) continue;
        const shmb_tensor *t = m->tensors;
        const char *command = m->count ? t->name : "";
        if (strcmp(command, "number") == 0)
            shmb_host_reply_i64(h, key, false, *(const int64_t *)t->data);
        else if (strcmp(command, "fail") == 0)
            shmb_host_reply_error(h, key, false, SHMB_MODEL, t->data, (size_t)t->size);
        else if (strcmp(command, "slow") != 0) echo(h, key, m);
    }
}

struct echo_host *echo_host_start(const char *name) {
    struct echo_host *h = calloc(1, sizeof *h);
    CHECK(h);
    bridge_open(&h->bridge, name, small_plan, SHMB_WAIT_DEFAULT);
    CHECK(pthread_create(&h->thread, NULL, serve, h) == 0);
    return h;
}

const char *echo_host_name(const struct echo_host *h) { return h->bridge.name; }

void echo_host_stop(struct echo_host *h) {
    shmb_host_wake(h->bridge.host);
    pthread_join(h->thread, NULL);
    bridge_close(&h->bridge);
    free(h);
}
