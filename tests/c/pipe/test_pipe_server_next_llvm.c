/* Of LLVM's compilers one after another, as in `clang a.c b.c`, each has its answers, also where
 * the host looks only after the first has written its last lines and left and the next has asked.
 */
#include "pipes.h"

static const char header[] =
    "{\"features\":[{\"name\":\"x\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"inlining_decision\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}}\n{"
    "\"context\":\"\"}\n";

static struct client c;

static void compiler_begins(const struct pipes *p) {
    c = client_open(p);
    CHECK(write(c.to, header, sizeof header - 1) == sizeof header - 1);
}

static void compiler_asks(void) {
    char observation[32] = "{\"observation\":0}\n";
    size_t size = strlen(observation);
    memcpy(observation + size, (char[]){5, 0, 0, 0, 0, 0, 0, 0, '\n'}, 9);
    CHECK(write(c.to, observation, size + 9) == (ssize_t)size + 9);
}

static void compiler_leaves(void) {
    CHECK(write(c.to, "{\"context\":\"f\"}\n", 16) == 16);
    client_close(&c);
}

static void expect_advice(struct compilers *s) {
    int64_t key = compilers_receive(s, PATIENCE_MS), advice = -1;
    const shmb_message *m = shmb_host_message(s->bridge.host, key);
    CHECK(m && *(const int64_t *)m->tensors[0].data == 5);
    CHECK(reply_i64(s->bridge.host, key, false, 1) == SHMB_OK);
    shmb_pipe_server_flush(s->server);
    pipes_await(c.from, POLLIN);
    CHECK(read(c.from, &advice, sizeof advice) == sizeof advice && advice == 1);
}

int main(void) {
    struct compilers s;
    bridge_open(&s.bridge, "server-llvm", small_plan, SHMB_WAIT_BLOCK);
    pipes_make(&s.pipes, "");
    CHECK((s.server = shmb_pipe_server_new(-1)));
    CHECK(!shmb_pipe_server_add(s.server, s.pipes.path, "llvm", "", 0,
                                bridge_connect(&s.bridge, "wait=block")));
    for (int looks = 0; looks < 2; looks++)
        for (int i = 0; i < 3; i++) {
            compiler_begins(&s.pipes);
            if (i != 1) { /* the second needs no advice */
                compiler_asks();
                expect_advice(&s);
            }
            if (looks) CHECK(compilers_receive(&s, 20) == -1);
            compiler_leaves();
            if (looks)
                CHECK(compilers_receive(&s, 20) == -1 && shmb_pipe_server_talking(s.server) == 0);
        }
    compiler_begins(&s.pipes);
    compiler_asks();
    expect_advice(&s);
    compiler_leaves();
    compilers_close(&s);
}
