/* What is no frame ends its sender's conversation with a failure and an end of file; what does not
 * decode, only its question. */
#include "pipes.h"

static void expect_failure(int from, shmb_status status) {
    struct {
        uint64_t length;
        uint8_t status;
        char text[512];
    } reply;
    pipes_await(from, POLLIN);
    ssize_t n = read(from, &reply, sizeof reply);
    CHECK(n > 9 && reply.length == (frame_failed | (uint64_t)(n - 8)) && reply.status == status);
}

static void nonsense(struct compilers *s, uint64_t length) {
    char byte;
    struct client c = client_open(&s->pipes);
    CHECK(write(c.to, &length, sizeof length) == sizeof length);
    CHECK(compilers_receive(s, 20) == -1);
    expect_failure(c.from, SHMB_CORRUPT);
    CHECK(read(c.from, &byte, 1) == 0);
    CHECK(write(c.to, &length, sizeof length) == sizeof length); /* goes nowhere */
    CHECK(compilers_receive(s, 20) == -1);
    client_close(&c);
    CHECK(compilers_receive(s, 20) == -1);
}

/* More than there are addresses. */
static void a_frames_length_takes_no_memory(struct compilers *s) {
    struct pipes p;
    uint64_t text[512] = {(uint64_t)1 << 47};
    pipes_make(&p, "");
    CHECK(!shmb_pipe_server_add(s->server, p.path, "frames", "raw", (size_t)1 << 48, NULL));
    struct client c = client_open(&p);
    CHECK(write(c.to, text, sizeof text) == sizeof text);
    CHECK(compilers_receive(s, 20) == -1 && shmb_pipe_server_talking(s->server) == 1);
    CHECK(read(c.from, text, 1) == -1 && errno == EAGAIN); /* no end of file */
    client_close(&c);
    pipes_remove(&p);
}

int main(void) {
    struct compilers s;
    compilers_open(&s, "server-refuses");
    nonsense(&s, UINT64_MAX);
    nonsense(&s, (uint64_t)1 << 60);
    shmb_runner *r = pipes_connect(&s.pipes);
    pipes_start(r, "x");
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    shmb_close(r);

    int64_t key;
    r = pipes_connect(&s.pipes);
    pipes_start(r, "x");
    CHECK((key = compilers_receive(&s, PATIENCE_MS)) >= 0);
    CHECK(shmb_host_reply_error(s.bridge.host, key, false, SHMB_MODEL, "no idea", 7) == SHMB_OK);
    shmb_pipe_server_flush(s.server);
    CHECK_STATUS(r, pipes_result(r), SHMB_MODEL);
    CHECK(strcmp(shmb_error_message(r), "no idea") == 0);
    pipes_start(r, "y"); /* after a failure it goes on */
    CHECK((key = compilers_receive(&s, PATIENCE_MS)) >= 0);
    reply_i64(s.bridge.host, key, false, 5); /* which serdes=raw cannot send */
    shmb_pipe_server_flush(s.server);
    CHECK_STATUS(r, pipes_result(r), SHMB_MISMATCH);
    pipes_start(r, "z");
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    shmb_close(r);
    a_frames_length_takes_no_memory(&s);
    compilers_close(&s);
}
