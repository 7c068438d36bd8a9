/* A dead runner's claim may say anything: the next one never takes the old READY, and the old
 * reply, for its own. */
#include "bridge.h"
#include "segment/ring.h"

int main(void) {
    struct server server;
    server_start(&server, "old-ready", SHMB_WAIT_DEFAULT);
    shmb_runner *r = runner_open(server.bridge.name);
    CHECK(asked(r, 41) == 42);
    shmb_close(r);

    struct segment s = bridge_segment(&server.bridge);
    uint64_t ready = load_acquire(&shmb_segment_channel_line(&s, 0)->ready);
    /* so that one more is the generation of before */
    store_release(&shmb_segment_runner_line(&s, 0)->claim, ready - 256);
    shmb_segment_detach(&s);

    r = runner_open(server.bridge.name);
    CHECK(asked(r, 1) == 2);
    shmb_close(r);
    server_stop(&server);
}
