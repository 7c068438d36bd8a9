/* The model's side in C, the tests' host: looks at the first element, answers 1. CORE -1: on any
 * core, and it answers the first element, an int64. Prints its bridge's name.
 *     host WAIT CORE REQUEST_BYTES CHANNELS      WAIT: as in a URL */
#include "bridge.h"

#include <sched.h>
#include <signal.h>

static struct bridge b;
static volatile float first; /* what the model would have read */

static shmb_wait wait_of(const char *name) {
    return !strcmp(name, "spin")    ? SHMB_WAIT_SPIN
           : !strcmp(name, "block") ? SHMB_WAIT_BLOCK
                                    : SHMB_WAIT_ADAPTIVE;
}

static void stop(int number) {
    (void)number;
    shmb_host_wake(b.host);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    shmb_plan plan = {.channels = (uint32_t)atoi(argv[4]),
                      .slots = 2,
                      .header_bytes = 4096,
                      .advice_bytes = 4096,
                      .request_bytes = strtoull(argv[3], NULL, 10)};
    bridge_open(&b, "bench", plan, wait_of(argv[1]));
    int core = atoi(argv[2]);
    cpu_set_t cpus; /* only now: a host that may use one CPU only does not spin */
    CPU_ZERO(&cpus);
    if (core >= 0) {
        CPU_SET(core, &cpus);
        sched_setaffinity(0, sizeof cpus, &cpus);
    }
    signal(SIGTERM, stop);
    printf("%s\n", b.name);
    fflush(stdout);
    for (int64_t key; (key = shmb_host_receive(b.host, 100000000)) != -SHMB_INTERRUPTED;) {
        if (key < 0) continue;
        const shmb_message *m = shmb_host_message(b.host, key);
        int64_t answer = 1;
        if (core < 0) answer = *(const int64_t *)m->tensors[0].data;
        else first = *(const float *)m->tensors[0].data;
        reply_i64(b.host, key, false, answer);
    }
    bridge_close(&b);
}
