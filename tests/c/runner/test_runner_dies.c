/* A runner that is killed, asking or filling, frees its channel for the next; the host's reply to
 * it is RUNNER_GONE. */
#include "bridge.h"

static pid_t runner_process(const char *name, bool asks) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    shmb_runner *r = runner_open(name);
    shmb_set_i64(r, "x", 1);
    if (asks) shmb_evaluate(r);
    for (;;) pause();
}

int main(void) {
    struct bridge b;
    shmb_plan plan = small_plan;
    plan.channels = 1;
    bridge_open(&b, "victim", plan, SHMB_WAIT_DEFAULT);
    for (int i = 0; i < 6; i++) {
        pid_t pid = runner_process(b.name, i % 2 == 0);
        int64_t key = -1;
        if (i % 2 == 0) {
            key = bridge_receive(&b);
            CHECK(!(key & SHMB_KEY_COPY)); /* no slot is still the last runner's */
        } else
            while (shmb_host_attached(b.host) == 0) shmb_host_receive(b.host, 10000000);
        CHECK(shmb_host_attached(b.host) == 1);
        process_kill(pid);
        while (shmb_host_attached(b.host)) shmb_host_receive(b.host, 100000000);
        if (key >= 0) CHECK(reply_i64(b.host, key, false, 1) == SHMB_RUNNER_GONE);
        shmb_runner *r = bridge_connect(&b, ""); /* the only channel there is */
        bridge_asked(&b, r, 5);
        /* and now one that claims before the host has seen that the last is gone */
        if (i < 3) shmb_close(r);
        else {
            key = bridge_ask_x(&b, r, 1, SHMB_ANY);
            shmb_close(r);
            r = bridge_connect(&b, "");
            CHECK(reply_i64(b.host, key, false, 99) == SHMB_RUNNER_GONE);
            bridge_asked(&b, r, 7);
            shmb_close(r);
        }
    }
    bridge_close(&b);
}
