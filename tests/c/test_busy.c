/* A runner more than there are channels waits a moment, then says BUSY; one that leaves makes room.
 */
#include "bridge.h"

static void *close_soon(void *runner) {
    usleep(50000);
    shmb_close(runner);
    return NULL;
}

int main(void) {
    struct server s;
    shmb_plan plan = {
        .channels = 16, .slots = 2, .header_bytes = 256, .request_bytes = 64, .advice_bytes = 64};
    bridge_open(&s.bridge, "busy", plan, SHMB_WAIT_DEFAULT);
    server_run(&s);
    shmb_runner *r[17];
    shmb_options brief = {.size = sizeof brief, .deadline = 0.1};
    for (int i = 0; i < 16; i++) CHECK_STATUS(r[i], shmb_open(s.bridge.name, NULL, &r[i]), SHMB_OK);
    CHECK_STATUS(r[16], shmb_open(s.bridge.name, &brief, &r[16]), SHMB_BUSY);
    CHECK(strstr(shmb_error_message(r[16]), "16 channels"));
    shmb_close(r[16]);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, close_soon, r[7]) == 0);
    CHECK_STATUS(r[16], shmb_open(s.bridge.name, NULL, &r[16]), SHMB_OK);
    pthread_join(thread, NULL);
    r[7] = r[16];
    for (int i = 0; i < 16; i++) {
        int64_t advice;
        shmb_set_i64(r[i], "x", i);
        CHECK_STATUS(r[i], shmb_evaluate_i64(r[i], &advice), SHMB_OK);
        CHECK(advice == i + 1);
        shmb_close(r[i]);
    }
    server_stop(&s);
    return 0;
}
