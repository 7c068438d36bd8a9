/* Questions and answers of all sizes through a pair of named pipes, one runner after another. Bound
 * features and interrupts are as through shared memory. */
#include "pipes.h"

static struct compilers s;

static void *ask_large(void *context) {
    shmb_runner *r = context;
    memset(feature_u8(r, "x", 50000), 'l', 50000);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE); /* for the bridge's slot of advice */
    memset(feature_u8(r, "x", 300000), 'l', 300000);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE); /* for the bridge's slot */
    memset(feature_u8(r, "x", 3000000), 'l', 3000000);
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_TOO_LARGE, "request_bytes"); /* for a frame */
    CHECK_STATUS(r, pipes_evaluate(r, "small"), SHMB_OK);
    return NULL;
}

static void large(shmb_runner *r) {
    pthread_t thread = thread_start(ask_large, r);
    static const char bytes[50001];
    int64_t key = compilers_receive(&s, PATIENCE_MS);
    CHECK(reply_bytes(s.bridge.host, key, sizeof bytes, bytes) == SHMB_TOO_LARGE);
    shmb_pipe_server_flush(s.server);
    compilers_answer(&s, compilers_receive(&s, PATIENCE_MS));
    pthread_join(thread, NULL);
}

static void bound(shmb_runner *r) {
    uint8_t *x = shmb_bind(r, "x", SHMB_UINT8, 1, &(int64_t){3});
    CHECK((uintptr_t)x % 64 == 0);
    for (int i = 0; i < 5; i++) {
        memcpy(x, (char[]){'a', 'b', (char)('0' + i)}, 3);
        CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
        CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
        pipes_expect(r, (char[]){'a', 'b', (char)('0' + i), '!', 0});
        CHECK(shmb_bind(r, "x", SHMB_UINT8, 1, &(int64_t){3}) == x);
    }
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
    shmb_interrupt(r);
    CHECK_STATUS(r, pipes_result(r), SHMB_INTERRUPTED);
    memcpy(x, "new", 3);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK); /* waits for the reply that is owed */
    CHECK(shmb_runner_continue(r) == -1);
    compilers_answer(&s, compilers_receive(&s, PATIENCE_MS));
    CHECK(shmb_runner_continue(r) == -1);
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    pipes_expect(r, "new!");
}

int main(void) {
    compilers_open(&s, "pipe-round-trip");
    shmb_runner *r = pipes_connect(&s.pipes);
    bound(r);
    CHECK(shmb_pipe_server_talking(s.server) == 1);
    shmb_close(r);
    r = pipes_connect(&s.pipes);
    large(r);
    shmb_close(r);
    CHECK(compilers_receive(&s, 200) == -1 && shmb_pipe_server_talking(s.server) == 0);
    shmb_conversation_info info;
    shmb_pipe_server_info(s.server, 0, &info);
    CHECK(info.asked == 11 && info.status == SHMB_TOO_LARGE && *info.why);
    compilers_close(&s);
}
