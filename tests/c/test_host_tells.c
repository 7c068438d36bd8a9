/* A host counts its runners and those that wait, names their claims, and shows that it receives. */
#include "bridge.h"

static bool receives(const struct bridge *b) {
    char path[NAME_ROOM];
    shmb_segment_info info;
    shmb_segment_name(b->name, NULL, path);
    int fd = shm_open(path, O_RDWR | O_CLOEXEC, 0);
    CHECK(fd >= 0 && shmb_inspect(fd, &info, NULL) && close(fd) == 0);
    return info.looping;
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "tells", small_plan, SHMB_WAIT_DEFAULT);
    CHECK(!receives(&b) && shmb_host_attached(b.host) == 0 && shmb_host_claim(b.host, 0) == -1);
    shmb_runner *r = bridge_connect(&b, ""), *other = bridge_connect(&b, "");
    CHECK(receives(&b) && shmb_host_attached(b.host) == 2 && shmb_host_waiting(b.host) == 0);
    shmb_set_i64(r, "x", 1);
    int64_t key = bridge_ask(&b, r, SHMB_ANY);
    CHECK(shmb_host_waiting(b.host) == 1);
    for (int i = -1; i <= (int)small_plan.channels; i++)
        CHECK(shmb_host_claim(b.host, i) == (i == 0 || i == 1 ? 1 : -1));
    CHECK(shmb_host_reply_begin(b.host, key) == SHMB_OK);
    CHECK(shmb_host_reply_i64(b.host, key, false, 1) == SHMB_INVALID);
    CHECK(strstr(shmb_host_error(b.host, key), "another reply is being built"));
    CHECK(shmb_host_reply_send(b.host, key, false) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    CHECK(shmb_host_waiting(b.host) == 0);
    for (int i = 0; i < 2; i++) {
        shmb_host_rest(b.host);
        CHECK(!receives(&b));
        CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT && receives(&b));
    }
    shmb_host_wake(b.host);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_INTERRUPTED);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT);
    shmb_close(other);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT && shmb_host_attached(b.host) == 1);
    shmb_close(r);
    bridge_close(&b);
    return 0;
}
