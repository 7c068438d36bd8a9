/* connect_timeout: 0 waits for no host that is not there, and one that is there has its moment to
 * accept all the same. */
#include <math.h>

#include "pipes.h"

enum { SOON_US = 200 * 1000 }; /* longer than a slice, shorter than the moment */

static void nobody_is_not_waited_for(void) {
    const char *const urls[] = {"shm://never", "shm://never?connect_timeout=0",
                                "pipe:///tmp/shmb-never"};
    for (int i = 0; i < 3; i++) {
        double timeout = -1;
        shmb_runner *r;
        CHECK_STATUS(r, shmb_open_slice(urls[i], NULL, HUGE_VAL, &timeout, &r), SHMB_NO_HOST);
        CHECK(timeout == 0);
        shmb_close(r);
    }
}

static void what_is_no_time_is_refused(void) {
    const double bad[] = {-1, -1e-9, -INFINITY, NAN};
    for (int i = 0; i < 4; i++) {
        shmb_options waits = {.size = sizeof waits, .connect_timeout = bad[i]},
                     deadline = {.size = sizeof deadline, .deadline = bad[i]};
        shmb_runner *r;
        CHECK_STATUS(r, shmb_open("shm://never", &waits, &r), SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), "connect_timeout"));
        shmb_close(r);
        CHECK_STATUS(r, shmb_open("shm://never", &deadline, &r), SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), "deadline"));
        shmb_close(r);
    }
}

static void *serve_soon(void *server) {
    usleep(SOON_US);
    server_run(server);
    return NULL;
}

/* Such as one that still loads its model, or computes for another runner. */
static void a_host_that_is_there_may_be_slow_to_accept(const char *query) {
    struct server s;
    pthread_t thread;
    shmb_runner *r;
    char url[100];
    bridge_open(&s.bridge, "slow", small_plan, SHMB_WAIT_DEFAULT);
    snprintf(url, sizeof url, "shm://%s%s", s.bridge.name, query);
    CHECK(pthread_create(&thread, NULL, serve_soon, &s) == 0);
    CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
    pthread_join(thread, NULL);
    shmb_close(r);
    server_stop(&s);
}

static void *close_soon(void *runner) {
    usleep(SOON_US);
    shmb_close(runner);
    return NULL;
}

static void a_channel_may_become_free(void) {
    struct server s;
    shmb_plan plan = {
        .channels = 1, .slots = 2, .header_bytes = 256, .request_bytes = 64, .advice_bytes = 64};
    pthread_t thread;
    shmb_runner *first, *r;
    bridge_open(&s.bridge, "one", plan, SHMB_WAIT_DEFAULT);
    server_run(&s);
    CHECK_STATUS(first, shmb_open(s.bridge.name, NULL, &first), SHMB_OK);
    CHECK(pthread_create(&thread, NULL, close_soon, first) == 0);
    CHECK_STATUS(r, shmb_open(s.bridge.name, NULL, &r), SHMB_OK);
    pthread_join(thread, NULL);
    shmb_close(r);
    server_stop(&s);
}

static void *listen_soon(void *pipes) {
    usleep(SOON_US);
    pipes_listen(pipes);
    return NULL;
}

/* Pipes do not tell a host that opens them from one that has died. */
static void pipes_that_stand_are_waited_for(void) {
    struct pipes p;
    pthread_t thread;
    pipes_make(&p, "");
    CHECK(pthread_create(&thread, NULL, listen_soon, &p) == 0);
    shmb_close(pipes_connect(&p));
    pthread_join(thread, NULL);
    pipes_remove(&p);
}

int main(void) {
    nobody_is_not_waited_for();
    what_is_no_time_is_refused();
    a_host_that_is_there_may_be_slow_to_accept("");
    a_host_that_is_there_may_be_slow_to_accept("?connect_timeout=0");
    a_channel_may_become_free();
    pipes_that_stand_are_waited_for();
    return 0;
}
