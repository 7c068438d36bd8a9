/* Each allocation and each system call of a runner and of a host fails once: that is an error with
 * a text, or none. No descriptor is left, no memory (LeakSanitizer), and what comes next works. */
#define WRAPPED
#include "module_faults.c"

#include <dirent.h>

#include "pipes.h"
#include "runner/default.h"

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

static void expect_told(shmb_status status, const char *text) {
    if (status == SHMB_INVALID) fprintf(stderr, "%s failed: %s\n", failed, text);
    if (status && !*text) fprintf(stderr, "%s failed: status %d has no text\n", failed, status);
    CHECK((!status || *text) && status != SHMB_INVALID); /* nobody made a mistake */
    if (failed && strcmp(failed, "flock") == 0)          /* nobody else is there */
        CHECK(status != SHMB_IN_USE && status != SHMB_BUSY);
}

/* Opens a runner, asks and closes it. Returns whether all went well. */
static bool asks(const char *url) {
    shmb_options options = {.size = sizeof options, .log = shmb_say_nothing};
    shmb_runner *r;
    shmb_status status = shmb_open(url, &options, &r);
    bool well = !status;
    expect_told(status, shmb_error_message(r));
    for (int i = 0; i < 4; i++) {
        int64_t advice;
        float *x = shmb_feature_f32(r, "x", 4 << i);
        if (x) x[0] = 6;
        shmb_set_strings(r, "names", 2, (const char *const[]){"a", "bc"}, NULL);
        status = shmb_evaluate_i64(r, &advice);
        expect_told(status, shmb_error_message(r));
        CHECK(status || advice == 7);
        well &= !status;
    }
    shmb_close(r);
    return well;
}

/* The number of calls that failed, one in a run. */
static long each_call_of(bool (*run)(const char *), const char *url) {
    CHECK(run(url)); /* what is allocated once for the process */
    usleep(10000);   /* a server in another thread may be opening its pipe again */
    int before = descriptors();
    for (long n = 1;; n++) {
        faults_from(n);
        bool well = run(url);
        const char *call = faults_end();
        bool more = true;
        for (int i = 0; i < 100 && (more = descriptors() != before); i++) usleep(10000);
        if (more) fprintf(stderr, "%s failed: a descriptor is left\n", call);
        CHECK(!more);
        if (!well) CHECK(call && run(url));
        if (!call) return n - 1;
    }
}

static void runner(void) {
    struct server s;
    char url[128];
    server_start(&s, "fails", SHMB_WAIT_BLOCK);
    for (int i = 0; i < 2; i++) {
        snprintf(url, sizeof url, "shm://%s?wait=block&retries=%d", s.bridge.name, i);
        CHECK(each_call_of(asks, url) > 20);
    }
    server_stop(&s);
}

/* ---- A host ---- */

static struct bridge *bridge;

static bool creates(const char *ignored) {
    shmb_host *h;
    uint8_t session[SESSION_BYTES];
    for (int i = 0; i < SESSION_BYTES; i++) sscanf(bridge->session + 2 * i, "%2hhx", &session[i]);
    long n = left;
    faults_end();
    int fd = memfd_create("host", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)shmb_plan_bytes(&bridge->plan)) == 0);
    faults_from(n);
    shmb_status status = shmb_host_create(fd, &bridge->plan, session, SHMB_WAIT_BLOCK, &h);
    expect_told(status, shmb_host_error(h, -1));
    shmb_host_free(h);
    if (status) close(fd); /* still the caller's */
    return !status;
}

static void *ask_in_thread(void *url) { return asks(url) ? url : NULL; }

/* Answers a runner until that has ended; well: all answers came. */
static bool answers(const char *url) {
    void *well;
    long n = left;
    faults_end();
    pthread_t thread = thread_start(ask_in_thread, (void *)(uintptr_t)url);
    faults_from(n);
    while (pthread_tryjoin_np(thread, &well)) {
        int64_t key = shmb_host_receive(bridge->host, 1000000);
        if (key >= 0) bridge_answer(bridge, key);
    }
    return well;
}

static void host(void) {
    struct bridge b;
    char url[128];
    bridge = &b;
    bridge_open(&b, "fails-host", small_plan, SHMB_WAIT_BLOCK);
    CHECK(each_call_of(creates, "") > 5);
    snprintf(url, sizeof url, "shm://%s?wait=block", b.name);
    CHECK(each_call_of(answers, url) > 5);
    bridge_close(&b);
}

/* ---- Pipes ---- */

static struct pipes pipes;
static char serdes[256];

/* A pipe server with that bridge's runner. NULL: why is said. */
static shmb_pipe_server *pipe_server_of(const char *bridge_url) {
    shmb_options options = {.size = sizeof options, .log = shmb_say_nothing};
    shmb_runner *r;
    shmb_pipe_server *server = shmb_pipe_server_new(-1);
    shmb_status status = shmb_open(bridge_url, &options, &r);
    expect_told(status, shmb_error_message(r));
    if (status) shmb_close(r);
    else {
        status = shmb_pipe_server_add(server, pipes.path, "frames", "flatbuffers", 1 << 20, r);
        expect_told(status, shmb_pipe_server_error(server));
    }
    if (!status) return server;
    shmb_pipe_server_close(server);
    shmb_pipe_server_free(server);
    return NULL;
}

static void *run_pipes(void *server) {
    while (shmb_pipe_server_run(server, NULL, SECOND_NS) == -SHMB_TIMEOUT) continue;
    return NULL;
}

static void pipe_runner(const char *bridge_url) {
    pthread_t thread;
    shmb_pipe_server *server = pipe_server_of(bridge_url);
    CHECK(server && pthread_create(&thread, NULL, run_pipes, server) == 0);
    CHECK(each_call_of(asks, serdes) > 20);
    shmb_pipe_server_stop(server);
    pthread_join(thread, NULL);
    shmb_pipe_server_free(server);
}

static bool opens_pipes(const char *bridge_url) {
    shmb_pipe_server *server = pipe_server_of(bridge_url);
    shmb_pipe_server_free(server);
    return server;
}

/* Serves a runner until that has ended; well: all answers came. */
static bool serves_pipes(const char *bridge_url) {
    pthread_t thread;
    void *well;
    long n = left;
    faults_end();
    shmb_pipe_server *server = pipe_server_of(bridge_url);
    CHECK(server && pthread_create(&thread, NULL, ask_in_thread, serdes) == 0);
    faults_from(n);
    while (pthread_tryjoin_np(thread, &well)) shmb_pipe_server_run(server, NULL, SECOND_NS / 1000);
    shmb_pipe_server_free(server);
    return well;
}

/* Serves an LLVM, which waits for its answer; if there cannot be one, the caller is told so. */
static bool serves_llvm(const char *bridge_url) {
    static const char text[] =
        "{\"features\":[{\"name\":\"mask\",\"type\":\"int64_t\",\"shape\":[2]}],"
        "\"advice\":{\"name\":\"index_to_evict\",\"type\":\"int64_t\",\"shape\":[1]}}\n"
        "{\"context\":\"f\"}\n{\"observation\":0}\n0123456701234567\n";
    shmb_options options = {.size = sizeof options, .log = shmb_say_nothing};
    shmb_conversation_info info = {0};
    shmb_status status = SHMB_TIMEOUT;
    shmb_runner *r;
    long n = left;
    faults_end();
    shmb_pipe_server *server = shmb_pipe_server_new(-1);
    CHECK(!shmb_open(bridge_url, &options, &r) &&
          !shmb_pipe_server_add(server, pipes.path, "llvm", "", 0, r));
    struct client llvm = client_open(&pipes);
    CHECK(write(llvm.to, text, sizeof text - 1) == sizeof text - 1);
    faults_from(n);
    for (int i = 0; i < 500 && status == SHMB_TIMEOUT && !info.asked; i++) {
        status = (shmb_status)-shmb_pipe_server_run(server, NULL, SECOND_NS / 100);
        shmb_pipe_server_info(server, 0, &info);
    }
    faults_end();
    bool answered = read(llvm.from, &(int64_t){0}, 8) == 8;
    CHECK(answered || status == SHMB_DROPPED);
    if (!answered) expect_told(status, shmb_pipe_server_error(server));
    client_close(&llvm);
    shmb_pipe_server_free(server);
    return answered;
}

static void through_pipes(void) {
    struct server s;
    char url[128];
    server_start(&s, "fails-pipes", SHMB_WAIT_BLOCK);
    snprintf(url, sizeof url, "shm://%s?wait=block", s.bridge.name);
    pipes_make(&pipes, "");
    snprintf(serdes, sizeof serdes, "pipe://%s?serdes=flatbuffers", pipes.path);
    pipe_runner(url);
    CHECK(each_call_of(opens_pipes, url) > 20);
    CHECK(each_call_of(serves_pipes, url) > 20);
    CHECK(each_call_of(serves_llvm, url) > 20);
    pipes_remove(&pipes);
    server_stop(&s);
}

int main(void) {
    runner();
    host();
    through_pipes();
}
