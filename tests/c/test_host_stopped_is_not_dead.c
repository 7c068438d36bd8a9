/* A host that is stopped is not dead: runners wait on, and get their advice once it continues. */
#include "bridge.h"

int main(void) {
    char name[64];
    pid_t host = host_process("stopped", name, NULL);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(name, NULL, &r), SHMB_OK);
    int64_t advice;
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
    kill(host, SIGSTOP);
    CHECK(waitpid(host, NULL, WUNTRACED) == host);
    shmb_set_deadline(r, 0.5);
    shmb_set_i64(r, "x", 2);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_TIMEOUT);
    shmb_set_deadline(r, 0);
    shmb_set_i64(r, "x", 3);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    for (int i = 0; i < 4; i++) CHECK(shmb_runner_continue(r) == -1);
    kill(host, SIGCONT);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    shmb_close(r);
    process_kill(host);
    CHECK(bridge_clean(name));
    return 0;
}
