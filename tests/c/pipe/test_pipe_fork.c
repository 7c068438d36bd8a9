/* A forked child's copy of a pipe runner, and of a host of pipes, says FORKED, may be closed, and
 * keeps nothing open. */
#include "pipes.h"

static void the_child(struct compilers *s, shmb_runner *r) {
    shmb_tensor t;
    CHECK_STATUS(r, shmb_advice(r, NULL, &t), SHMB_OK);
    pipes_expect(r, "1!");
    CHECK_STATUS(r, pipes_evaluate(r, "3"), SHMB_FORKED);
    CHECK(shmb_pipe_server_run(s->server, s->bridge.host, 0) == -SHMB_FORKED);
    shmb_pipe_server_flush(s->server);
    shmb_pipe_server_close(s->server);
    CHECK(shmb_pipe_server_talking(s->server) == 0);
    shmb_close(r);
    shmb_pipe_server_free(s->server);
}

int main(void) {
    struct compilers s;
    compilers_open(&s, "pipe-fork");
    shmb_runner *r = pipes_connect(&s.pipes);
    pipes_start(r, "1");
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    int sync[2];
    CHECK(pipe2(sync, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        the_child(&s, r);
        CHECK(write(sync[1], "", 1) == 1);
        pause();
    }
    pipes_await(sync[0], POLLIN);
    pipes_start(r, "2"); /* the parent's is as it was */
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    pipes_expect(r, "2!");
    shmb_close(r); /* ... and its end shows, though the child lives */
    CHECK(compilers_receive(&s, 50) == -1 && shmb_pipe_server_talking(s.server) == 0);
    r = pipes_connect(&s.pipes);
    shmb_pipe_server_close(s.server);
    CHECK_STATUS(r, pipes_evaluate(r, "4"), SHMB_HOST_GONE);
    shmb_close(r);
    process_kill(pid);
    compilers_close(&s);
}
