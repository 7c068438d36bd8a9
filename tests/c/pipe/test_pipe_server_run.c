/* Conversations whose bridge is another process's: they wait for advice, and say what their runners
 * say when that process is killed. */
#include "pipes.h"

static void *run(void *server) {
    int64_t status;
    while ((status = shmb_pipe_server_run(server, NULL, 100000000)) == -SHMB_TIMEOUT) continue;
    CHECK(status == -SHMB_INTERRUPTED);
    return NULL;
}

/* Answers with its own bytes. */
static void serve(struct bridge *b) {
    for (;;) {
        int64_t key = shmb_host_receive(b->host, 100000000);
        if (key >= 0) bridge_echo(b, key, false);
    }
}

static void ask(shmb_runner *r, shmb_status expected) {
    CHECK_STATUS(r, pipes_evaluate(r, "hello"), expected);
    if (!expected) pipes_expect(r, "hello");
}

int main(void) {
    char name[64];
    struct pipes p[2];
    shmb_runner *bridge, *r[2];
    pid_t host = host_process("server-run", name, serve);
    shmb_pipe_server *server = shmb_pipe_server_new(-1);
    for (int i = 0; i < 2; i++) {
        pipes_make(&p[i], "");
        bridge = runner_open(name);
        CHECK(!shmb_pipe_server_add(server, p[i].path, "frames", "raw", 1 << 16, bridge));
        if (i == 0) CHECK(shmb_pipe_server_run(server, NULL, 1000000) == -SHMB_TIMEOUT);
    }
    CHECK(shmb_pipe_server_add(server, p[0].path, "frames", "raw", 1, NULL) == SHMB_IN_USE);
    CHECK(shmb_pipe_server_add(server, p[0].path, "frames", "morse", 1, NULL) == SHMB_INVALID);
    CHECK(shmb_pipe_server_add(server, p[0].path, "morse", "raw", 1, NULL) == SHMB_INVALID);
    CHECK(shmb_pipe_server_add(server, "/tmp/no-such-pipes", "frames", "raw", 1, NULL) ==
          SHMB_SYSTEM);
    pthread_t thread = thread_start(run, server);
    for (int i = 0; i < 2; i++) r[i] = pipes_connect(&p[i]);
    for (int i = 0; i < 100; i++) ask(r[i % 2], SHMB_OK);
    process_kill(host);
    ask(r[0], SHMB_HOST_GONE);
    shmb_close(r[0]);
    r[0] = pipes_connect(&p[0]);
    ask(r[0], SHMB_HOST_GONE);
    ask(r[1], SHMB_HOST_GONE);
    shmb_pipe_server_stop(server);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) shmb_close(r[i]);
    shmb_pipe_server_free(server);
    for (int i = 0; i < 2; i++) pipes_remove(&p[i]);
    CHECK(bridge_clean(name));
}
