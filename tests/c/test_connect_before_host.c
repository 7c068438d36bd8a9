/* A runner may be started before its host: it waits for it as long as connect_timeout says. */
#include "bridge.h"

int main(void) {
    struct server s;
    struct opening o = {.status = SHMB_OK};
    snprintf(o.url, sizeof o.url, "shm://early-%d?connect_timeout=10", (int)getpid());
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, opening_run, &o) == 0);
    usleep(50000);
    CHECK(!atomic_load(&o.done));
    server_start(&s, "early", SHMB_WAIT_DEFAULT);
    pthread_join(thread, NULL);
    CHECK_STATUS(o.runner, o.status, SHMB_OK);
    int64_t advice;
    shmb_set_i64(o.runner, "x", 1);
    CHECK_STATUS(o.runner, shmb_evaluate_i64(o.runner, &advice), SHMB_OK);
    shmb_close(o.runner);
    server_stop(&s);

    CHECK_STATUS(o.runner, shmb_open("shm://never?connect_timeout=50ms", NULL, &o.runner),
                 SHMB_NO_HOST);
    shmb_close(o.runner);
    CHECK_STATUS(o.runner, shmb_open("shm://never?connect_timeout=0", NULL, &o.runner),
                 SHMB_NO_HOST);
    shmb_close(o.runner);
    return 0;
}
