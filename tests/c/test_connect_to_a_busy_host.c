/* A host that always has another request waiting still accepts a new runner. */
#include "bridge.h"

enum { ASKERS = 3 };

static _Atomic int stop;

static void *ask_on(void *runner) {
    while (!atomic_load(&stop)) {
        int64_t advice;
        shmb_set_i64(runner, "x", 1);
        CHECK_STATUS(runner, shmb_evaluate_i64(runner, &advice), SHMB_OK);
    }
    return NULL;
}

static void *serve_slowly(void *context) {
    struct bridge *b = context;
    for (int64_t key; (key = shmb_host_receive(b->host, 100000000)) != -SHMB_CLOSED &&
                      key != -SHMB_INTERRUPTED;) {
        if (key < 0) continue;
        usleep(10000); /* the model: meanwhile the others ask */
        bridge_answer(b, key);
    }
    return NULL;
}

int main(void) {
    struct server s;
    pthread_t threads[ASKERS];
    shmb_runner *askers[ASKERS], *r;
    char url[100];
    bridge_open(&s.bridge, "busy-host", small_plan, SHMB_WAIT_DEFAULT);
    CHECK(pthread_create(&s.thread, NULL, serve_slowly, &s.bridge) == 0);
    for (int i = 0; i < ASKERS; i++)
        CHECK_STATUS(askers[i], shmb_open(s.bridge.name, NULL, &askers[i]), SHMB_OK);
    for (int i = 0; i < ASKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_on, askers[i]) == 0);
    usleep(200000);
    snprintf(url, sizeof url, "shm://%s?connect_timeout=3", s.bridge.name);
    CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
    atomic_store(&stop, 1);
    for (int i = 0; i < ASKERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < ASKERS; i++) shmb_close(askers[i]);
    shmb_close(r);
    server_stop(&s);
    return 0;
}
