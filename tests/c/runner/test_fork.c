/* A forked child reads kept arrays, gets FORKED from every call, may close, and takes nothing from
 * its parent. */
#include "bridge.h"

static void child(shmb_runner *idle, shmb_runner *filling, shmb_runner *bound, int64_t *bound_x) {
    shmb_tensor t;
    int64_t advice = -1;
    CHECK_STATUS(idle, shmb_advice(idle, NULL, &t), SHMB_OK);
    CHECK(*(const int64_t *)t.data == 6);
    CHECK(*bound_x == 11);
    shmb_runner *all[] = {idle, filling, bound};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            if (k < 2) {
                shmb_set_i64(all[k], "x", 1);
                /* private memory: writing is safe */
                memset(shmb_feature_f32(all[k], "y", 100), 1, 400);
            }
            CHECK_FAILS(all[k], shmb_evaluate_i64(all[k], &advice), SHMB_FORKED, "fork");
        }
    CHECK(advice == -1);
    for (int k = 0; k < 3; k++) shmb_close(all[k]);
}

int main(void) {
    char name[64];
    pid_t host = host_process("fork", name, NULL);
    shmb_runner *idle = runner_open(name), *filling = runner_open(name), *bound = runner_open(name);
    CHECK(asked(idle, 5) == 6);
    int64_t *x = shmb_bind(bound, "x", SHMB_INT64, 0, NULL);
    *x = 11;
    shmb_set_i64(filling, "x", 20);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(idle, filling, bound, x);
            if (i == 2) kill(getpid(), SIGKILL);
            exit(0);
        }
        CHECK(process_wait(pid) == (i == 2 ? 128 + SIGKILL : 0));
    }
    CHECK(evaluated(filling) == 21); /* the parent's request is as it was */
    CHECK(evaluated(bound) == 12);
    CHECK(asked(idle, 30) == 31);
    pid_t pid = fork(); /* the child opens its own */
    if (pid == 0) {
        shmb_close(idle);
        idle = runner_open(name);
        CHECK(asked(idle, 40) == 41);
        shmb_close(idle);
        exit(0);
    }
    CHECK(process_wait(pid) == 0);
    shmb_close(idle);
    shmb_close(filling);
    shmb_close(bound);
    process_kill(host);
    CHECK(bridge_clean(name));
}
