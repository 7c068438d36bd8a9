#include "echo_host.h"

#include "bridge.h"

struct echo_host {
    struct server server;
};

static void *serve(void *context) {
    struct bridge *b = context;
    shmb_host *h = b->host;
    for (;;) {
        int64_t key = shmb_host_receive(h, 100000000);
        if (key == -SHMB_CLOSED || key == -SHMB_INTERRUPTED) return NULL;
        const shmb_message *m = key < 0 ? NULL : shmb_host_message(h, key);
        if (!m) continue;
        const shmb_tensor *t = m->tensors;
        const char *command = m->count ? t->name : "";
        if (strcmp(command, "number") == 0) reply_i64(h, key, false, *(const int64_t *)t->data);
        else if (strcmp(command, "fail") == 0)
            shmb_host_reply_error(h, key, false, SHMB_MODEL, t->data, (size_t)t->size);
        else if (strcmp(command, "slow") != 0) bridge_echo(b, key, false);
    }
}

struct echo_host *echo_host_start(const char *name) {
    struct echo_host *h = calloc(1, sizeof *h);
    CHECK(h);
    bridge_open(&h->server.bridge, name, small_plan, SHMB_WAIT_DEFAULT);
    CHECK(pthread_create(&h->server.thread, NULL, serve, &h->server.bridge) == 0);
    return h;
}

const char *echo_host_name(const struct echo_host *h) { return h->server.bridge.name; }

void echo_host_stop(struct echo_host *h) {
    server_stop(&h->server);
    free(h);
}
