/* One thread receives, others reply: every runner gets its own advice, also one that gives up
 * question after question. */
#include "bridge.h"

enum { WORKERS = 3, RUNNERS = 4, ASKS = 400 };

static struct bridge b;
static int queue[2]; /* a pipe of keys */

static void *reply(void *unused) {
    for (int64_t key; read(queue[0], &key, sizeof key) == sizeof key && key >= 0;) {
        const shmb_message *m = shmb_host_message(b.host, key);
        int64_t x = m ? *(const int64_t *)m->tensors[0].data : -1;
        if (x < ASKS && x % 3 == 0) usleep(2000);
        reply_i64(b.host, key, false, x + 1);
    }
    return unused;
}

static void *receive(void *unused) {
    for (int64_t key; (key = shmb_host_receive(b.host, 100000000)) != -SHMB_INTERRUPTED;)
        if (key >= 0) CHECK(write(queue[1], &key, sizeof key) == sizeof key);
    return unused;
}

static void *ask(void *number) {
    int64_t first = (int64_t)(intptr_t)number * ASKS;
    shmb_runner *r = runner_open(b.name);
    for (int64_t x = first; x < first + ASKS; x++) {
        int64_t advice = x + 1;
        shmb_set_deadline(r, !first && x % 2 ? 0.0005 : 0);
        shmb_set_i64(r, "x", x);
        shmb_status status = shmb_evaluate_i64(r, &advice);
        CHECK(advice == x + 1 && status == (!first && x % 2 && status ? SHMB_TIMEOUT : SHMB_OK));
    }
    shmb_close(r);
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS], receiver, runners[RUNNERS];
    int64_t end = -1;
    shmb_plan plan = small_plan;
    plan.slots = 4;
    bridge_open(&b, "replies", plan, SHMB_WAIT_DEFAULT);
    CHECK(pipe(queue) == 0);
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, reply, NULL) == 0);
    CHECK(pthread_create(&receiver, NULL, receive, NULL) == 0);
    for (intptr_t i = 0; i < RUNNERS; i++)
        CHECK(pthread_create(&runners[i], NULL, ask, (void *)i) == 0);
    for (int i = 0; i < RUNNERS; i++) pthread_join(runners[i], NULL);
    shmb_host_wake(b.host);
    pthread_join(receiver, NULL);
    for (int i = 0; i < WORKERS; i++) CHECK(write(queue[1], &end, sizeof end) == sizeof end);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    bridge_close(&b);
}
