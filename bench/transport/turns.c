/* Both ends alternate in one thread, so that nothing waits: the library's own instructions
 * per message.
 *     turns BYTES MESSAGES      raises SIGTRAP before and after the messages, for count.c
 */
#include "bridge.h"

#include <signal.h>

static struct bridge b;
static shmb_runner *r;

static void *open_runner(void *name) {
    CHECK_STATUS(r, shmb_open(name, NULL, &r), SHMB_OK);
    return NULL;
}

static void message(size_t bytes) {
    float *features = shmb_feature_f32(r, "features", (int64_t)(bytes / sizeof(float)));
    features[0] = 1; /* the rest is the user's: filling is not counted */
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_INT64), SHMB_OK);
    int64_t key = shmb_host_receive(b.host, 0);
    CHECK(key >= 0 &&
          shmb_host_message(b.host, key)->tensors[0].size == (int64_t)(bytes / sizeof(float)));
    CHECK(reply_i64(b.host, key, false, 1) == SHMB_OK);
    CHECK_STATUS(r, shmb_runner_continue(r), SHMB_OK);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    signal(SIGTRAP, SIG_IGN); /* when not counted */
    size_t bytes = strtoull(argv[1], NULL, 10);
    int messages = atoi(argv[2]);
    shmb_plan plan = {.channels = 1,
                      .slots = 2,
                      .header_bytes = 4096,
                      .request_bytes = bytes,
                      .advice_bytes = 4096};
    bridge_open(&b, "turns", plan, SHMB_WAIT_DEFAULT);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, open_runner, b.name) == 0);
    while (!shmb_host_attached(b.host)) shmb_host_receive(b.host, 1000000);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++) message(bytes); /* layout and caches are known after these */
    raise(SIGTRAP);
    for (int i = 0; i < messages; i++) message(bytes);
    raise(SIGTRAP);
    shmb_close(r);
    bridge_close(&b);
}
