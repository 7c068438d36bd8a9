/* Replies come from any thread, a stop and a close end a wait at once, and a runner of each of many
 * lines is served. */
#include "pipes.h"

enum { LINES = 3, ROUNDS = 50 };

struct job {
    struct compilers *s;
    int64_t key;
};

static void *reply(void *context) {
    struct job *job = context;
    compilers_answer(job->s, job->key);
    free(job);
    return NULL;
}

static void *ask(void *context) {
    shmb_runner *r = pipes_connect(context);
    for (int i = 0; i < ROUNDS; i++) {
        char text[16];
        snprintf(text, sizeof text, "q%d", i);
        CHECK_STATUS(r, pipes_evaluate(r, text), SHMB_OK);
        strcat(text, "!");
        pipes_expect(r, text);
    }
    shmb_close(r);
    return NULL;
}

static void *stop(void *server) {
    usleep(20000);
    shmb_pipe_server_stop(server);
    return NULL;
}

static void *close_it(void *server) {
    usleep(20000);
    shmb_pipe_server_close(server);
    return NULL;
}

static int64_t receive_until(struct compilers *s, void *(*end)(void *)) {
    pthread_t thread = thread_start(end, s->server);
    int64_t key;
    while ((key = shmb_pipe_server_run(s->server, s->bridge.host, INT64_MAX)) == -SHMB_TIMEOUT)
        continue;
    pthread_join(thread, NULL);
    return key;
}

int main(void) {
    struct compilers s;
    struct pipes more[LINES];
    pthread_t askers[LINES], repliers[LINES * ROUNDS];
    compilers_open(&s, "server-threads");
    for (int i = 0; i < LINES; i++) {
        pipes_make(&more[i], "");
        CHECK(!shmb_pipe_server_add(s.server, more[i].path, "frames", "raw", 1 << 20,
                                    bridge_connect(&s.bridge, "wait=block")));
        CHECK(pthread_create(&askers[i], NULL, ask, &more[i]) == 0);
    }
    for (int i = 0; i < LINES * ROUNDS; i++) {
        struct job *job = malloc(sizeof *job);
        *job = (struct job){&s, compilers_receive(&s, PATIENCE_MS)};
        CHECK(job->key >= 0 && pthread_create(&repliers[i], NULL, reply, job) == 0);
    }
    for (int i = 0; i < LINES * ROUNDS; i++) pthread_join(repliers[i], NULL);
    CHECK(compilers_receive(&s, 50) == -1);
    for (int i = 0; i < LINES; i++) pthread_join(askers[i], NULL);
    CHECK(receive_until(&s, stop) == -SHMB_INTERRUPTED);
    shmb_runner *r = pipes_connect(&s.pipes);
    CHECK(receive_until(&s, close_it) == -SHMB_CLOSED);
    CHECK_STATUS(r, pipes_evaluate(r, "x"), SHMB_HOST_GONE);
    shmb_close(r);
    compilers_close(&s);
    for (int i = 0; i < LINES; i++) pipes_remove(&more[i]);
}
