/* A host that is killed and started again in mid-run: with retries no evaluate of any thread is
 * lost, and bound features stay where they were. */
#include "bridge.h"

enum { THREADS = 3, RESTARTS = 6, ANSWERS = 60 };

static char name[64];
static _Atomic long answered;

static void serve_as(struct bridge *b) {
    bridge_take_over(b, name);
    bridge_serve(b);
}

/* A process that has a host running, and for each byte it reads kills that and starts another; ends
 * with its input. */
static void supervise(int in) {
    char byte, before[64];
    for (bool more = true; more;) {
        pid_t host = host_process("recovering", before, serve_as);
        more = read(in, &byte, 1) == 1;
        process_kill(host);
        bridge_clean(before); /* of one that was killed before it had the name */
    }
    bridge_clean(name);
    _exit(0);
}

static void *work(void *which) {
    bool binds = (uintptr_t)which == 1;
    shmb_runner *r;
    shmb_options o = {.size = sizeof o,
                      .connect_timeout = 10,
                      .retries = 100000,
                      .backoff = 0.001,
                      .wait = (uintptr_t)which == 2 ? SHMB_WAIT_BLOCK : SHMB_WAIT_DEFAULT};
    CHECK_STATUS(r, shmb_open(name, &o, &r), SHMB_OK);
    int64_t *bound = binds ? shmb_bind(r, "echo", SHMB_INT64, 0, NULL) : NULL;
    float *v = binds ? shmb_bind(r, "v", SHMB_FLOAT32, 1, (const int64_t[]){100}) : NULL;
    for (int64_t i = 0; atomic_load(&answered) < RESTARTS * ANSWERS; i++) {
        shmb_tensor t;
        if (binds) {
            *bound = i;
            v[99] = (float)i;
            CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
            CHECK(shmb_advice(r, "echo", &t) == SHMB_OK && *(const int64_t *)t.data == i);
            CHECK(shmb_advice(r, "v", &t) == SHMB_OK && ((const float *)t.data)[99] == (float)i);
        } else {
            CHECK(asked(r, i) == i + 1);
        }
        atomic_fetch_add(&answered, 1);
    }
    CHECK(stats(r).defaulted == 0);
    shmb_close(r);
    return NULL;
}

int main(void) {
    int ends[2];
    pthread_t threads[THREADS];
    snprintf(name, sizeof name, "recovers-%d", (int)getpid());
    CHECK(pipe(ends) == 0);
    pid_t supervisor = fork();
    if (supervisor == 0) {
        close(ends[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        supervise(ends[0]);
    }
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 1; i < RESTARTS; i++) {
        while (atomic_load(&answered) < i * ANSWERS) usleep(200);
        CHECK(write(ends[1], "k", 1) == 1);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    close(ends[1]);
    CHECK(process_wait(supervisor) == 0);
}
