/* One thread receives, others reply: every runner gets its own advice. */
#include "bridge.h"

enum { WORKERS = 3, RUNNERS = 4, ASKS = 400 };

static struct bridge b;
static int queue[2]; /* a pipe of keys */

static void *reply(void *unused) {
    for (int64_t key; read(queue[0], &key, sizeof key) == sizeof key && key >= 0;)
        bridge_answer(&b, key);
    return unused;
}

static void *receive(void *unused) {
    for (int64_t key; (key = shmb_host_receive(b.host, 100000000)) != -SHMB_INTERRUPTED;)
        if (key >= 0) CHECK(write(queue[1], &key, sizeof key) == sizeof key);
    return unused;
}

static void *ask(void *number) {
    shmb_runner *r;
    int64_t advice, me = *(const int64_t *)number;
    CHECK_STATUS(r, shmb_open(b.name, NULL, &r), SHMB_OK);
    for (int64_t i = 0; i < ASKS; i++) {
        shmb_set_i64(r, "x", me * 1000 + i);
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == me * 1000 + i + 1);
    }
    shmb_close(r);
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS], receiver, runners[RUNNERS];
    int64_t numbers[RUNNERS], end = -1;
    bridge_open(&b, "replies", small_plan, SHMB_WAIT_DEFAULT);
    CHECK(pipe(queue) == 0);
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, reply, NULL) == 0);
    CHECK(pthread_create(&receiver, NULL, receive, NULL) == 0);
    for (int i = 0; i < RUNNERS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&runners[i], NULL, ask, &numbers[i]) == 0);
    }
    for (int i = 0; i < RUNNERS; i++) pthread_join(runners[i], NULL);
    shmb_host_wake(b.host);
    pthread_join(receiver, NULL);
    for (int i = 0; i < WORKERS; i++) CHECK(write(queue[1], &end, sizeof end) == sizeof end);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    bridge_close(&b);
    return 0;
}
