/* Every way of waiting, on either side, brings every message through; posts too many on the
 * semaphores are harmless. */
#include "bridge.h"

static _Atomic int stop;

static void *post_wildly(void *context) {
    struct segment s = bridge_segment(context);
    for (int i = 0; !atomic_load(&stop); i++) {
        shmb_semaphore_post(i & 1 ? &shmb_segment_channel_line(&s, 0)->semaphore
                                  : shmb_segment_host_semaphore(&s));
        usleep(i % 50);
    }
    shmb_segment_detach(&s);
    return NULL;
}

static void exchange(shmb_wait host, shmb_wait runner, bool posts) {
    struct server s;
    pthread_t poster;
    shmb_runner *r;
    server_start(&s, "policies", host);
    atomic_store(&stop, 0);
    if (posts) CHECK(pthread_create(&poster, NULL, post_wildly, &s.bridge) == 0);
    shmb_options options = {.size = sizeof options, .wait = runner};
    CHECK_STATUS(r, shmb_open(s.bridge.name, &options, &r), SHMB_OK);
    for (int i = 0; i < 500; i++) {
        CHECK(asked(r, i) == i + 1);
        if (i % 100 == 0) usleep(1000);
    }
    atomic_store(&stop, 1);
    if (posts) pthread_join(poster, NULL);
    shmb_close(r);
    server_stop(&s);
}

int main(void) {
    for (shmb_wait host = SHMB_WAIT_DEFAULT; host <= SHMB_WAIT_BLOCK; host++)
        for (shmb_wait runner = SHMB_WAIT_DEFAULT; runner <= SHMB_WAIT_BLOCK; runner++)
            exchange(host, runner, false);
    exchange(SHMB_WAIT_BLOCK, SHMB_WAIT_BLOCK, true);
    exchange(SHMB_WAIT_DEFAULT, SHMB_WAIT_DEFAULT, true);
}
