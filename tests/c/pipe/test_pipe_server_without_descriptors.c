/* A process that has run out of descriptors cannot open a pipe anew when a compiler leaves: its
 * host sleeps all the same, and serves the next one as soon as there are some. */
#include <sys/resource.h>
#include <time.h>

#include "pipes.h"

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void leaves_while_there_are_none(struct compilers *s, const void *bytes, size_t size) {
    struct rlimit most, none;
    int in = open(pipes_name(&s->pipes, "in"), O_RDONLY | O_NONBLOCK),
        out = open(pipes_name(&s->pipes, "out"), O_WRONLY);
    CHECK(in >= 0 && write(out, bytes, size) == (ssize_t)size && compilers_receive(s, 20) == -1);
    CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
    none = most;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    close(out);
    int64_t used = cpu_ns(), since = shmb_clock_ns();
    CHECK(compilers_receive(s, 250) == -1);
    /* a loop that does not sleep uses all of it */
    CHECK(cpu_ns() - used < (shmb_clock_ns() - since) / 4);
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    close(in);
    CHECK(compilers_receive(s, 20) == -1); /* a turn of the host, in which it hangs up no more */
    shmb_runner *r = pipes_connect(&s->pipes);
    pipes_start(r, "next");
    CHECK_STATUS(r, compilers_turn(s, r), SHMB_OK);
    pipes_expect(r, "next!");
    shmb_close(r);
}

int main(void) {
    struct compilers s;
    uint64_t half_a_frame = 3000, no_length = UINT64_MAX;
    compilers_open(&s, "descriptors");
    leaves_while_there_are_none(&s, &half_a_frame, sizeof half_a_frame);
    leaves_while_there_are_none(&s, &no_length, sizeof no_length);
    compilers_close(&s);
}
