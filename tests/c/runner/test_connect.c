/* A runner waits for a host that is not there as long as connect_timeout says, and for one that is
 * there at least a moment, whatever keeps it from being accepted. */
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
    for (int i = 0; i < 8; i++) {
        shmb_options o = {.size = sizeof o};
        *(i % 2 ? &o.connect_timeout : &o.deadline) = bad[i / 2];
        open_fails("shm://never", &o, SHMB_INVALID, i % 2 ? "connect_timeout" : "deadline");
    }
}

static void a_host_may_come_later(void) {
    struct server s;
    struct opening o = {.url = ""};
    snprintf(o.url, sizeof o.url, "shm://early-%d?connect_timeout=10", (int)getpid());
    pthread_t thread = thread_start(opening_run, &o);
    usleep(50000);
    CHECK(!atomic_load(&o.done));
    server_start(&s, "early", SHMB_WAIT_DEFAULT);
    pthread_join(thread, NULL);
    CHECK_STATUS(o.runner, o.status, SHMB_OK);
    CHECK(asked(o.runner, 1) == 2);
    shmb_close(o.runner);
    server_stop(&s);
    open_fails("shm://never?connect_timeout=50ms", NULL, SHMB_NO_HOST, "");
}

static void *serve_soon(void *server) {
    usleep(SOON_US);
    server_run(server);
    return NULL;
}

/* Such as one that still loads its model, or computes for another runner. */
static void a_host_that_is_there_may_be_slow_to_accept(const char *query) {
    struct server s;
    char url[100];
    bridge_open(&s.bridge, "slow", small_plan, SHMB_WAIT_DEFAULT);
    snprintf(url, sizeof url, "shm://%s%s", s.bridge.name, query);
    pthread_t thread = thread_start(serve_soon, &s);
    shmb_close(runner_open(url));
    pthread_join(thread, NULL);
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
    pipes_make(&p, "");
    pthread_t thread = thread_start(listen_soon, &p);
    shmb_close(pipes_connect(&p));
    pthread_join(thread, NULL);
    pipes_remove(&p);
}

static void *close_soon(void *runner) {
    usleep(SOON_US);
    shmb_close(runner);
    return NULL;
}

/* One runner more than there are channels waits a moment; one that leaves makes room. */
static void a_channel_may_become_free(void) {
    struct server s;
    shmb_runner *r[16];
    shmb_plan plan = small_plan;
    shmb_options brief = {.size = sizeof brief, .deadline = 0.1};
    plan.channels = 16;
    bridge_open(&s.bridge, "busy", plan, SHMB_WAIT_DEFAULT);
    server_run(&s);
    for (int i = 0; i < 16; i++) r[i] = runner_open(s.bridge.name);
    open_fails(s.bridge.name, &brief, SHMB_BUSY, "16 channels");
    pthread_t thread = thread_start(close_soon, r[7]);
    r[7] = runner_open(s.bridge.name);
    pthread_join(thread, NULL);
    for (int i = 0; i < 16; i++) {
        CHECK(asked(r[i], i) == i + 1);
        shmb_close(r[i]);
    }
    server_stop(&s);
}

static _Atomic int stop;

static void *ask_on(void *runner) {
    while (!atomic_load(&stop)) CHECK(asked(runner, 1) == 2);
    return NULL;
}

static void *serve_slowly(void *context) {
    struct bridge *b = context;
    for (int64_t key; (key = shmb_host_receive(b->host, 100000000)) != -SHMB_INTERRUPTED;) {
        if (key < 0) continue;
        usleep(10000); /* the model: meanwhile the others ask */
        bridge_answer(b, key);
    }
    return NULL;
}

static void a_host_that_always_has_a_request_still_accepts(void) {
    enum { ASKERS = 3 };
    struct server s;
    pthread_t threads[ASKERS];
    shmb_runner *askers[ASKERS];
    char url[100];
    bridge_open(&s.bridge, "busy-host", small_plan, SHMB_WAIT_DEFAULT);
    CHECK(pthread_create(&s.thread, NULL, serve_slowly, &s.bridge) == 0);
    for (int i = 0; i < ASKERS; i++) askers[i] = runner_open(s.bridge.name);
    for (int i = 0; i < ASKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_on, askers[i]) == 0);
    usleep(SOON_US);
    snprintf(url, sizeof url, "shm://%s?connect_timeout=3", s.bridge.name);
    shmb_close(runner_open(url));
    atomic_store(&stop, 1);
    for (int i = 0; i < ASKERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < ASKERS; i++) shmb_close(askers[i]);
    server_stop(&s);
}

int main(void) {
    nobody_is_not_waited_for();
    what_is_no_time_is_refused();
    a_host_may_come_later();
    a_host_that_is_there_may_be_slow_to_accept("");
    a_host_that_is_there_may_be_slow_to_accept("?connect_timeout=0");
    pipes_that_stand_are_waited_for();
    a_channel_may_become_free();
    a_host_that_always_has_a_request_still_accepts();
}
