/* Words that only grow are set near their maximum: positions and stamps, a question's number, the
 * claim's generation, the layout versions in a host's keys, and semaphores. Nothing is lost. Python
 * does not count with them: it masks keys, and passes them on. */
#include "bridge.h"

/* the private state of both sides */
#include "host/host.c"
#include "runner/shm.c"

enum { BEFORE = 3, TURNS = 8 };

/* Numbers, and lists of changing length, a question at a time. */
static void ask_on(struct bridge *b, shmb_runner *r) {
    for (int64_t i = 0; i < TURNS; i++) {
        shmb_tensor t;
        shmb_set_i64(r, "x", i);
        float *v = shmb_feature_f32(r, "v", 1 + i % 4);
        for (int64_t k = 0; k <= i % 4; k++) v[k] = (float)k;
        CHECK_STATUS(r, bridge_turn(b, r, SHMB_INT64), SHMB_OK);
        CHECK(shmb_advice(r, "advice", &t) == SHMB_OK && *(const int64_t *)t.data == i + 1);
    }
}

static void positions(struct bridge *b, uint64_t limit) {
    shmb_runner *r = bridge_connect(b, "");
    struct shm *s = r->kind_state;
    struct channel *c = &b->host->channels[s->channel];
    ask_on(b, r);
    s->out.position = c->in.position = limit - BEFORE;
    s->in.position = c->out.position = limit - BEFORE;
    ask_on(b, r);
    shmb_close(r);
}

static void versions(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    b->host->channels[0].in.versions = ((uint64_t)1 << 47) - BEFORE;
    ask_on(b, r);
    shmb_close(r);
}

static void generations(struct bridge *b, uint64_t generation) {
    struct segment s = bridge_segment(b);
    store_release(&shmb_segment_runner_line(&s, 0)->claim, generation << 8);
    CHECK(shmb_host_receive(b->host, 1000000) < 0);
    for (int i = 0; i < TURNS; i++) {
        shmb_runner *r = bridge_connect(b, "");
        ask_on(b, r);
        shmb_close(r);
    }
    shmb_segment_detach(&s);
}

/* Of both sides, which sleep as ever. */
static void semaphores(void) {
    struct server server;
    server_start(&server, "full-bells", SHMB_WAIT_BLOCK);
    shmb_runner *r = runner_open(server.bridge.name);
    struct shm *s = r->kind_state;
    atomic_store(&s->bell->count, UINT32_MAX);
    atomic_store(&s->host_bell->count, UINT32_MAX);
    for (int64_t i = 0; i < TURNS; i++) CHECK(asked(r, i) == i + 1);
    shmb_close(r);
    server_stop(&server);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "near-the-wrap", small_plan, SHMB_WAIT_DEFAULT);
    positions(&b, (uint64_t)1 << 32);
    positions(&b, UINT64_MAX);
    versions(&b);
    generations(&b, UINT32_MAX - BEFORE);
    generations(&b, (UINT64_MAX >> 8) - BEFORE);
    bridge_close(&b);
    semaphores();
}
