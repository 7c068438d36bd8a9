/* A host with one runner sleeps on the runner's CPU if the CPUs suffice. It gets its CPUs back when
 * it wakes, unless another program chose others. A host with a runner for each CPU moves to the
 * CPU of the last request, and stays free to run elsewhere. */
#include "bridge.h"

#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"

static struct sleeper {
    struct waiter waiter;
    _Atomic uint32_t asleep, news;
    _Atomic pid_t thread;
    sem_t bell;
    cpu_set_t after;
    int cpu; /* where it slept */
} s;

static bool look(void *context) { return atomic_load(&s.news); }

static void *run(void *context) {
    atomic_store(&s.thread, (pid_t)syscall(SYS_gettid));
    while (!look(NULL))
        shmb_waiter_wait(&s.waiter, look, NULL, &s.asleep, &s.bell, shmb_clock_ns() + SLICE_NS);
    CHECK(sched_getaffinity(0, sizeof s.after, &s.after) == 0);
    return NULL;
}

static cpu_set_t one(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

static int cpu_of(pid_t thread) {
    char path[64];
    int cpu = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    CHECK(file);
    for (int i = 1; i < 39; i++) CHECK(fscanf(file, "%*s") == 0); /* the name has no blank */
    CHECK(fscanf(file, "%d", &cpu) == 1);
    fclose(file);
    return cpu;
}

/* The CPUs that the sleeper may use once it sleeps; after the sleep they are in s.after. */
static cpu_set_t sleeps(uint32_t runners, int asker_cpu, const char *loadavg,
                        const cpu_set_t *chosen_meanwhile) {
    struct wait_hint mine = {0}, asker = {.cpu = (uint32_t)asker_cpu};
    struct host_line line = {.runners = runners};
    cpu_set_t during;
    pthread_t thread;
    s.news = s.asleep = 0;
    CHECK(sem_init(&s.bell, 0, 0) == 0);
    shmb_waiter_init(&s.waiter, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&s.waiter, &mine);
    s.waiter.host = &line;
    s.waiter.asker = &asker;
    s.waiter.peer = runners == 1 ? &asker : NULL;
    s.waiter.statistics.usual = SECOND_NS; /* waits are too long to spin */
    s.waiter.statistics.yields_from = INT64_MAX;
    FILE *file = tmpfile();
    CHECK(file && fputs(loadavg, file) >= 0 && fflush(file) == 0);
    s.waiter.loadavg = fileno(file);
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    while (!atomic_load(&s.asleep)) sched_yield();
    CHECK(sched_getaffinity(s.thread, sizeof during, &during) == 0);
    s.cpu = cpu_of(s.thread);
    if (chosen_meanwhile)
        CHECK(sched_setaffinity(s.thread, sizeof *chosen_meanwhile, chosen_meanwhile) == 0);
    atomic_store(&s.news, 1);
    CHECK(sem_post(&s.bell) == 0 && pthread_join(thread, NULL) == 0);
    fclose(file);
    return during;
}

int main(void) {
    cpu_set_t all, during, other;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2) return 0;
    int first = 0, second;
    while (!CPU_ISSET(first, &all)) first++;
    for (second = first + 1; !CPU_ISSET(second, &all);) second++;
    cpu_set_t near = one(first);
    other = one(second);

    const char *suffice = "0.10 1.01 1.42 2/136 1655\n";
    during = sleeps(1, first, suffice, NULL);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &all));
    during = sleeps(1, first, suffice, &other);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &other));
    during = sleeps(1, first, "9.10 1.01 1.42 9000/9136 1655\n", NULL); /* too many run */
    CHECK(CPU_EQUAL(&during, &all) && CPU_EQUAL(&s.after, &all));
    during = sleeps(1, first, "", NULL); /* no /proc */
    CHECK(CPU_EQUAL(&during, &all));
    during = sleeps(1, CPU_SETSIZE, suffice, NULL); /* a lie */
    CHECK(CPU_EQUAL(&during, &all));
    int moved = 0; /* the kernel may move it again at once */
    for (int i = 0; i < 20; i++) {
        int asker = i % 2 ? second : first;
        during = sleeps((uint32_t)CPU_COUNT(&all), asker, "", NULL);
        CHECK(CPU_EQUAL(&during, &all));
        moved += s.cpu == asker;
    }
    CHECK(moved >= 18);
    CHECK(sched_setaffinity(0, sizeof near, &near) == 0);
    during = sleeps(1, first, "0.10 1.01 1.42 1/136 1655\n", NULL);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &near));
    return 0;
}
