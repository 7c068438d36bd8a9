/* A host of the same name after a dead one: old runners learn of the death, new ones and reopened
 * ones reach the new host. */
#include "bridge.h"

static char name[64];

static void serve_as(struct bridge *b) {
    char from[NAME_ROOM], to[NAME_ROOM], path[2 * NAME_ROOM], target[2 * NAME_ROOM];
    shmb_segment_name(b->name, NULL, from);
    shmb_segment_name(name, NULL, to);
    snprintf(path, sizeof path, "/dev/shm%s", from);
    snprintf(target, sizeof target, "/dev/shm%s", to);
    CHECK(rename(path, target) == 0); /* a takeover: the new segment gets the old one's name */
    snprintf(b->name, sizeof b->name, "%s", name);
    bridge_serve(b);
}

static void expect(shmb_runner *r, shmb_status status) {
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate(r), status);
}

int main(void) {
    char unused[64], url[128];
    snprintf(name, sizeof name, "restarts-%d", (int)getpid());
    /* the host takes its name when it runs already */
    snprintf(url, sizeof url, "%s?connect_timeout=10", name);
    shmb_runner *old = NULL, *r;
    for (int i = 0; i < 4; i++) {
        pid_t host = host_process("restarting", unused, serve_as);
        CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
        expect(r, SHMB_OK);
        if (old) expect(old, SHMB_HOST_GONE);
        shmb_close(old);
        old = r;
        char session_of[NAME_ROOM], path[NAME_ROOM];
        shmb_segment_info info;
        shmb_segment_name(name, NULL, session_of);
        int fd = shm_open(session_of, O_RDWR, 0);
        CHECK(shmb_inspect(fd, &info, NULL) && info.alive && info.pid == (uint32_t)host);
        close(fd);
        process_kill(host);
        for (int k = -1; k < (int)info.channels; k++) {
            shmb_semaphore_name(info.session, k, path);
            sem_unlink(path); /* gc may have, of a host that is dead */
        }
    }
    shmb_close(old);
    bridge_clean(name);
    return 0;
}
