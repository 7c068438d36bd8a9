/* A child of the host reads requests, can neither serve nor end the bridge, and does not keep a
 * dead host alive; neither does a runner's child keep its channel. */
#include "bridge.h"

/* Serves; its child lives on after its death. */
static void serve_with_child(struct bridge *b) {
    setpgid(0, 0);
    if (fork() == 0) {
        for (;;) pause();
    }
    bridge_serve(b);
}

static void a_runners_child_keeps_no_channel(void) {
    struct bridge b;
    shmb_plan plan = small_plan;
    plan.channels = 1;
    bridge_open(&b, "fork-runner", plan, SHMB_WAIT_DEFAULT);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        runner_open(b.name);
        fork();
        for (;;) pause();
    }
    while (shmb_host_attached(b.host) == 0) shmb_host_receive(b.host, 100000000);
    usleep(50000);
    process_kill(pid);
    shmb_close(bridge_connect(&b, ""));
    kill(-pid, SIGKILL);
    bridge_close(&b);
}

int main(void) {
    char name[64];
    pid_t host = host_process("fork-host", name, serve_with_child);
    shmb_runner *r = runner_open(name);
    process_kill(host);
    CHECK_STATUS(r, evaluate_x(r, 1), SHMB_HOST_GONE); /* though a child of the host lives */
    shmb_close(r);
    kill(-host, SIGKILL);
    CHECK(bridge_clean(name));

    struct bridge b;
    bridge_open(&b, "fork-child", small_plan, SHMB_WAIT_DEFAULT);
    r = bridge_connect(&b, "");
    int64_t key = bridge_ask_x(&b, r, 7, SHMB_INT64);
    pid_t pid = fork();
    if (pid == 0) {
        const shmb_message *m = shmb_host_message(b.host, key);
        CHECK(m && *(const int64_t *)m->tensors[0].data == 7 && shmb_host_forked(b.host));
        CHECK(shmb_host_receive(b.host, 0) == -SHMB_FORKED);
        CHECK(reply_i64(b.host, key, false, 1) == SHMB_FORKED);
        shmb_host_release(b.host, key);
        shmb_host_close(b.host);
        shmb_host_free(b.host);
        exit(0);
    }
    CHECK(process_wait(pid) == 0);
    bridge_answer(&b, key);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    shmb_close(r);
    bridge_close(&b);
    a_runners_child_keeps_no_channel();
}
