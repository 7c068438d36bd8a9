/* A host that is killed gives its runners HOST_GONE, while they wait and later; the next host of
 * that kind is reached. */
#include "bridge.h"

static void accept_only(struct bridge *b) {
    for (;;) shmb_host_receive(b->host, 100000000);
}

static void wait_policy(const char *query) {
    char name[64], url[128];
    pid_t host = host_process("dies", name, accept_only);
    snprintf(url, sizeof url, "shm://%s%s", name, query);
    shmb_runner *r, *other;
    r = runner_open(url);
    other = runner_open(url);
    int64_t *x = shmb_feature(other, "x", SHMB_INT64, 1, &(int64_t){1});
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
    process_kill(host);
    CHECK_FAILS(r, bridge_result(r), SHMB_HOST_GONE, "died");
    *x = 5; /* what was handed out stays writable */
    CHECK_STATUS(other, shmb_evaluate(other), SHMB_HOST_GONE);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_HOST_GONE);
    shmb_close(r);
    shmb_close(other);
    snprintf(url, sizeof url, "shm://%s?connect_timeout=0", name);
    /* its segment is still there, but it is not */
    CHECK_FAILS(r, shmb_open(url, NULL, &r), SHMB_NO_HOST, "gc");
    shmb_close(r);
    CHECK(bridge_clean(name));
}

int main(void) {
    wait_policy("");
    wait_policy("?wait=spin");
    wait_policy("?wait=block");
}
