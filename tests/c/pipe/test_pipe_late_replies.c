/* A question that was given up is owed a reply, which is dropped; until it has come the next
 * question waits. */
#include "pipes.h"

static void after_a_deadline(struct pipes *p, shmb_runner *r) {
    char bytes[64];
    shmb_set_deadline(r, 0.02);
    CHECK_STATUS(r, pipes_evaluate(r, "one"), SHMB_TIMEOUT);
    CHECK_FAILS(r, pipes_evaluate(r, "lost"), SHMB_TIMEOUT, "not asked");
    CHECK(pipes_read_frame(p, bytes, sizeof bytes) == 3 && memcmp(bytes, "one", 3) == 0);
    char c;
    CHECK(read(p->from, &c, 1) < 0 && errno == EAGAIN);
    pipes_write_frame(p, 0, "late", 4);
    pipes_start(r, "two");
    shmb_set_deadline(r, 0);
    CHECK(pipes_read_frame(p, bytes, sizeof bytes) == 3 && memcmp(bytes, "two", 3) == 0);
    pipes_write_frame(p, 0, "second", 6);
    CHECK_STATUS(r, pipes_result(r), SHMB_OK);
    pipes_expect(r, "second");
}

/* More than a pipe holds: the rest is written before the next question. */
static void half_written(struct pipes *p, shmb_runner *r) {
    static char bytes[1 << 18];
    memset(feature_u8(r, "x", sizeof bytes), 'h', sizeof bytes);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
    CHECK(shmb_runner_continue(r) == -1);
    shmb_interrupt(r);
    CHECK_STATUS(r, pipes_result(r), SHMB_INTERRUPTED);
    pipes_start(r, "next");
    uint64_t length;
    pipes_read(p, &length, sizeof length);
    CHECK(length == sizeof bytes);
    for (size_t done = 0; done < sizeof bytes;) {
        ssize_t n = read(p->from, bytes + done, sizeof bytes - done);
        if (n < 0) CHECK(errno == EAGAIN && shmb_runner_continue(r) == -1);
        else done += (size_t)n;
    }
    for (size_t i = 0; i < sizeof bytes; i++) CHECK(bytes[i] == 'h');
    pipes_write_frame(p, 0, "late", 4);
    CHECK(shmb_runner_continue(r) == -1);
    CHECK(pipes_read_frame(p, bytes, sizeof bytes) == 4 && memcmp(bytes, "next", 4) == 0);
    pipes_write_frame(p, 0, "advice", 6);
    CHECK_STATUS(r, pipes_result(r), SHMB_OK);
    pipes_expect(r, "advice");
}

/* Nothing of it was written, since the pipe is full: nothing is owed. */
static void not_written(struct pipes *p, shmb_runner *r) {
    static char bytes[1 << 20];
    int out = open(pipes_name(p, "out"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t filled = 0, n;
    while ((n = write(out, bytes, 4096)) > 0) filled += n;
    close(out);
    shmb_set_deadline(r, 0.02);
    CHECK_STATUS(r, pipes_evaluate(r, "never"), SHMB_TIMEOUT);
    pipes_read(p, bytes, (size_t)filled);
    shmb_set_deadline(r, 0);
    pipes_start(r, "now");
    CHECK(pipes_read_frame(p, bytes, sizeof bytes) == 3);
    pipes_write_frame(p, 0, "ok", 2);
    CHECK_STATUS(r, pipes_result(r), SHMB_OK);
    pipes_expect(r, "ok");
}

int main(void) {
    struct pipes p;
    pipes_make(&p, "");
    shmb_runner *r = pipes_meet(&p);
    after_a_deadline(&p, r);
    half_written(&p, r);
    not_written(&p, r);
    shmb_close(r);
    pipes_remove(&p);
}
