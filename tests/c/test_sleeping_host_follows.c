/* A host whose runner asks now and then sleeps on the runner's CPU. The model never sees that, and
 * CPUs that another program chooses meanwhile stay. */
#include "bridge.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

enum { TRIES = 5000 };

static cpu_set_t all;
static _Atomic pid_t host_thread;
static _Atomic bool moved; /* by this test */

static void *serve(void *context) {
    struct bridge *b = context;
    atomic_store(&host_thread, (pid_t)syscall(SYS_gettid));
    for (;;) {
        int64_t key = shmb_host_receive(b->host, 100000000);
        if (key == -SHMB_INTERRUPTED) return NULL;
        if (key < 0) continue;
        cpu_set_t cpus;
        CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
        CHECK(CPU_EQUAL(&cpus, &all) || atomic_load(&moved));
        bridge_answer(b, key);
    }
}

static void ask(shmb_runner *r) {
    int64_t advice;
    *(float *)shmb_feature(r, "x", SHMB_FLOAT32, 0, NULL) = 1;
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_INT64, &advice), SHMB_OK);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static cpu_set_t cpus_of_host(void) {
    cpu_set_t cpus;
    CHECK(sched_getaffinity(atomic_load(&host_thread), sizeof cpus, &cpus) == 0);
    return cpus;
}

int main(void) {
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2) return 0;
    struct server s;
    bridge_open(&s.bridge, "follows", small_plan, SHMB_WAIT_ADAPTIVE);
    CHECK(pthread_create(&s.thread, NULL, serve, &s.bridge) == 0);
    char url[128];
    shmb_runner *r;
    snprintf(url, sizeof url, "shm://%s", s.bridge.name);
    CHECK_STATUS(r, shmb_open(url, NULL, &r), SHMB_OK);
    int tries = 0;
    cpu_set_t cpus;
    do ask(r);
    while (cpus = cpus_of_host(), CPU_COUNT(&cpus) != 1 && ++tries < TRIES);
    CHECK(CPU_COUNT(&cpus) == 1);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) { /* as taskset would, to another one */
        if (!CPU_ISSET(cpu, &all) || CPU_ISSET(cpu, &cpus)) continue;
        CPU_ZERO(&cpus);
        CPU_SET(cpu, &cpus);
        break;
    }
    atomic_store(&moved, true);
    CHECK(sched_setaffinity(atomic_load(&host_thread), sizeof cpus, &cpus) == 0);
    ask(r);
    cpu_set_t now = cpus_of_host();
    CHECK(CPU_EQUAL(&now, &cpus));
    shmb_close(r);
    server_stop(&s);
    return 0;
}
