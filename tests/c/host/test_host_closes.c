/* A host that closes gives every runner CLOSED: waiting, idle or connecting; a reply that was sent
 * before still counts. */
#include "bridge.h"

static void *evaluate(void *runner) {
    CHECK_STATUS(runner, evaluate_x(runner, 1), SHMB_CLOSED);
    return NULL;
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "closes", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *waiting = bridge_connect(&b, ""), *idle = bridge_connect(&b, "wait=spin"),
                *answered = bridge_connect(&b, "");
    bridge_answer(&b, bridge_ask_x(&b, answered, 1, SHMB_ANY));
    pthread_t thread = thread_start(evaluate, waiting);
    int64_t key = bridge_receive(&b);
    shmb_host_close(b.host);
    char path[NAME_ROOM];
    shmb_segment_path(b.name, NULL, path);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && shmb_peer_look(fd, HOST_BYTE) == PEER_DEAD); /* though its mapping stays */
    close(fd);
    CHECK(reply_i64(b.host, key, false, 1) == SHMB_CLOSED);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_CLOSED);
    pthread_join(thread, NULL);
    CHECK_STATUS(answered, bridge_result(answered), SHMB_OK);
    evaluate(idle);
    evaluate(idle); /* for good */
    evaluate(answered);
    char url[100];
    snprintf(url, sizeof url, "shm://%s?connect_timeout=0", b.name);
    open_fails(url, NULL, SHMB_NO_HOST, "");
    shmb_close(waiting);
    bridge_close(&b);
    shmb_close(idle); /* after the host's mapping is gone */
    shmb_close(answered);
}
