/* Questions and answers of all sizes through a pair of named pipes, one runner after another. */
#include "pipes.h"

static void *ask_large(void *context) {
    shmb_runner *r = context;
    memset(shmb_feature_u8(r, "x", 50000), 'l', 50000);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE); /* for the bridge's slot of advice */
    memset(shmb_feature_u8(r, "x", 300000), 'l', 300000);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_TOO_LARGE); /* for the bridge's slot */
    memset(shmb_feature_u8(r, "x", 3000000), 'l', 3000000);
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_TOO_LARGE, "request_bytes"); /* for a frame */
    pipes_fill(r, "small");
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    return NULL;
}

int main(void) {
    struct compilers s;
    compilers_open(&s, "pipe-round-trip");
    for (int i = 0; i < 3; i++) {
        shmb_runner *r = pipes_connect(&s.pipes);
        for (int k = 0; k < 20; k++) {
            pipes_start(r, k % 2 ? "question" : "");
            CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
            pipes_expect(r, k % 2 ? "question!" : "!");
            CHECK(shmb_pipe_server_talking(s.server) == 1);
        }
        shmb_close(r);
    }
    shmb_runner *r = pipes_connect(&s.pipes);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask_large, r) == 0);
    for (int i = 0; i < 2; i++) {
        int64_t key = compilers_receive(&s, PATIENCE_MS);
        const shmb_message *m = shmb_host_message(s.bridge.host, key);
        if (m->tensors[0].size > 100) {
            shmb_host_reply_begin(s.bridge.host, key);
            shmb_host_reply_add(s.bridge.host, key, "advice", SHMB_UINT8, SHMB_TENSOR, 1,
                                &m->tensors[0].size, NULL);
            CHECK(shmb_host_reply_send(s.bridge.host, key, false) == SHMB_TOO_LARGE);
            shmb_pipe_server_flush(s.server);
        } else compilers_answer(&s, key);
    }
    pthread_join(thread, NULL);
    shmb_close(r);
    CHECK(compilers_receive(&s, 200) == -1 && shmb_pipe_server_talking(s.server) == 0);
    shmb_conversation_info info;
    shmb_pipe_server_info(s.server, 0, &info);
    CHECK(info.asked == 64 && info.status == SHMB_TOO_LARGE && *info.why);
    compilers_close(&s);
    return 0;
}
