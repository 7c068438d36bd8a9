/* Eight threads with a runner each, on one host: every one gets its own advice, while others come
 * and go. Two threads that use one runner at once get an error. */
#include "bridge.h"

enum { THREADS = 8, ROUNDS = 5, ASKS = 300 };

static struct server server;

static void *ask(void *context) {
    int64_t me = *(const int64_t *)context;
    for (int round = 0; round < ROUNDS; round++) {
        shmb_runner *r = runner_open(server.bridge.name);
        for (int i = 0; i < ASKS; i++) {
            int64_t advice;
            shmb_tensor t;
            int64_t n = 1 + (me * 37 + i) % 500;
            int64_t *x = shmb_feature(r, i % 3 ? "x" : "echo", SHMB_INT64, 1, &n);
            for (int64_t k = 0; k < n; k++) x[k] = me * 1000000 + i + k;
            if (i % 5 == 0) shmb_set(r, "another layout", SHMB_FLOAT32, 0, NULL, &(float){1});
            CHECK_STATUS(r, i % 3 ? shmb_evaluate_i64(r, &advice) : shmb_evaluate(r), SHMB_OK);
            if (i % 3) CHECK(advice == me * 1000000 + i + 1);
            else {
                CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
                CHECK(t.size == n && ((const int64_t *)t.data)[n - 1] == me * 1000000 + i + n - 1);
            }
        }
        shmb_close(r);
    }
    return NULL;
}

static void *ask_once(void *r) {
    CHECK_STATUS(r, evaluate_x(r, 1), SHMB_OK);
    return NULL;
}

static void one_runner(void) {
    struct bridge b;
    bridge_open(&b, "one-runner", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    pthread_t thread = thread_start(ask_once, r);
    int64_t key = bridge_receive(&b);
    CHECK_STATUS(r, evaluate_x(r, 2), SHMB_INVALID);
    bridge_answer(&b, key);
    pthread_join(thread, NULL);
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_INVALID,
                "two threads"); /* what one of the two filled is lost */
    shmb_close(r);
    bridge_close(&b);
}

int main(void) {
    one_runner();
    shmb_plan plan = small_plan;
    plan.channels = THREADS;
    bridge_open(&server.bridge, "threads", plan, SHMB_WAIT_DEFAULT);
    server_run(&server);
    pthread_t threads[THREADS];
    int64_t numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, ask, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    server_stop(&server);
}
