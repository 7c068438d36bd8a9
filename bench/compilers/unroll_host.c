/* examples/unroll/policy.py as a host in C. Prints its bridge's name when it is ready. */
#include "bridge.h"
#include "unroll_model.c"

static struct bridge b;

static void stop(int number) {
    (void)number;
    bridge_unlink(&b);
    _exit(0);
}

int main(void) {
    shmb_plan plan = small_plan;
    plan.slots = 8;
    bridge_open(&b, "unroll", plan, SHMB_WAIT_ADAPTIVE);
    signal(SIGTERM, stop);
    puts(b.name);
    fflush(stdout);
    for (;;) {
        int64_t count, key = shmb_host_receive(b.host, 100000000);
        if (key < 0) continue;
        shmb_tensor output = {.data = &count};
        run(NULL, shmb_host_message(b.host, key)->tensors, &output);
        reply_i64(b.host, key, false, count);
    }
}
