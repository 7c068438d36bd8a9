/* Several threads reply to one channel while its runner gives up question after question: each
 * advice is its question's. */
#include "bridge.h"

enum { WORKERS = 3, ASKS = 600 };

static struct bridge b;
static int queue[2]; /* a pipe of keys */

static void *reply(void *unused) {
    for (int64_t key; read(queue[0], &key, sizeof key) == sizeof key && key >= 0;) {
        const shmb_message *m = shmb_host_message(b.host, key);
        int64_t x = m ? *(const int64_t *)m->tensors[0].data : -1;
        if (x % 3 == 0) usleep(2000);
        shmb_host_reply_i64(b.host, key, false, x + 1);
    }
    return unused;
}

static void *receive(void *unused) {
    for (int64_t key; (key = shmb_host_receive(b.host, 100000000)) != -SHMB_INTERRUPTED;)
        if (key >= 0) CHECK(write(queue[1], &key, sizeof key) == sizeof key);
    return unused;
}

int main(void) {
    pthread_t workers[WORKERS], receiver;
    int64_t end = -1;
    shmb_plan plan = small_plan;
    plan.slots = 4;
    bridge_open(&b, "late-replies", plan, SHMB_WAIT_DEFAULT);
    CHECK(pipe(queue) == 0);
    for (int i = 0; i < WORKERS; i++) CHECK(pthread_create(&workers[i], NULL, reply, NULL) == 0);
    CHECK(pthread_create(&receiver, NULL, receive, NULL) == 0);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(b.name, NULL, &r), SHMB_OK);
    int64_t advice, answered = 0;
    for (int64_t i = 0; i < ASKS; i++) {
        shmb_set_deadline(r, i % 2 ? 0.0005 : 0);
        shmb_set_i64(r, "x", i);
        shmb_status status = shmb_evaluate_i64(r, &advice);
        CHECK(status == SHMB_OK || status == SHMB_TIMEOUT);
        if (status == SHMB_OK) CHECK(advice == i + 1);
        answered += status == SHMB_OK;
    }
    CHECK(answered >= ASKS / 2);
    shmb_close(r);
    shmb_host_wake(b.host);
    pthread_join(receiver, NULL);
    for (int i = 0; i < WORKERS; i++) CHECK(write(queue[1], &end, sizeof end) == sizeof end);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    bridge_close(&b);
    return 0;
}
