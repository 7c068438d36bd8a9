/* Bound features keep their address and contents for the runner's life, and the same feature bound
 * again gives the same address. A late bind, or another feature beside them, is an error of that
 * call alone; a bind that fails in time lasts, since its feature would be missing. */
#include "bridge.h"

static struct bridge b;

static void contents_survive(void) {
    shmb_runner *r = bridge_connect(&b, "");
    int64_t *x = shmb_bind(r, "echo", SHMB_INT64, 0, NULL), echoed;
    float *y = shmb_bind(r, "y", SHMB_FLOAT32, 2, (const int64_t[]){3, 5});
    CHECK((uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0);
    *x = 0;
    for (int i = 0; i < 15; i++) y[i] = (float)i;
    for (int i = 0; i < 20; i++) {
        shmb_tensor t;
        *x += 1;
        y[i % 15] += 100;
        int64_t key = bridge_ask(&b, r, SHMB_ANY);
        CHECK(key & SHMB_KEY_COPY); /* what is read must be copied */
        bridge_echo(&b, key, false);
        CHECK_STATUS(r, bridge_result(r), SHMB_OK);
        CHECK(shmb_advice_number(r, "echo", SHMB_INT64, &echoed) == SHMB_OK && echoed == i + 1);
        CHECK_STATUS(r, shmb_advice(r, "y", &t), SHMB_OK);
        CHECK(memcmp(t.data, y, 15 * sizeof *y) == 0);
        CHECK(shmb_bind(r, "echo", SHMB_INT64, 0, NULL) == x);
        CHECK(shmb_bind(r, "y", SHMB_FLOAT32, 2, (int64_t[]){3, 5}) == y);
    }
    shmb_close(r);
}

/* What was bound is as it was, and the next evaluate sends it. */
static void expect_refused(shmb_runner *r, int64_t *x, const char *why) {
    *x += 1;
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_INVALID, why);
    CHECK(evaluated(r) == *x + 1);
}

static void what_comes_too_late_is_refused(const char *name) {
    shmb_runner *r = runner_open(name);
    int64_t *x = shmb_bind(r, "x", SHMB_INT64, 1, (int64_t[]){1});
    *x = 1;
    shmb_set_i64(r, "y", 1);
    expect_refused(r, x, "bound");
    *(int64_t *)shmb_bind(r, "late", SHMB_INT64, 0, NULL) = 7;
    expect_refused(r, x, "bind before");
    /* another shape */
    memset(shmb_bind(r, "x", SHMB_FLOAT32, 1, (int64_t[]){100}), 0, 400);
    expect_refused(r, x, "bind before");
    shmb_bind(r, "late", SHMB_INT64, 0, NULL);
    shmb_discard(r);
    CHECK(evaluated(r) == *x + 1);
    shmb_close(r);

    r = runner_open(name);
    CHECK(asked(r, 1) == 2 && shmb_bind(r, "x", SHMB_INT64, 0, NULL)); /* private memory */
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_INVALID, "bind before");
    CHECK(asked(r, 2) == 3);
    shmb_set_i64(r, "x", 3);
    CHECK(shmb_bind(r, "y", SHMB_INT64, 0, NULL)); /* behind a feature that was filled */
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_INVALID, "bind before");
    CHECK(asked(r, 4) == 5);
    shmb_close(r);
}

static void a_failure_in_time_lasts(const char *name) {
    shmb_runner *r = runner_open(name);
    CHECK(shmb_bind(r, "x", SHMB_INT64, 0, NULL) && shmb_bind(r, "y", SHMB_INT64, -1, NULL));
    for (int i = 0; i < 2; i++) CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_close(r);
}

int main(void) {
    struct server server;
    bridge_open(&b, "bind", small_plan, SHMB_WAIT_DEFAULT);
    contents_survive();
    bridge_close(&b);
    server_start(&server, "bind-late", SHMB_WAIT_DEFAULT);
    what_comes_too_late_is_refused(server.bridge.name);
    a_failure_in_time_lasts(server.bridge.name);
    server_stop(&server);
}
