/* A host with one runner sleeps on the runner's CPU if the CPUs suffice. It gets its CPUs back when
 * it wakes, unless another program chose others. */
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

/* The CPUs that the sleeper may use once it sleeps; after the sleep they are in s.after. */
static cpu_set_t sleeps(int runner_cpu, const char *loadavg, const cpu_set_t *chosen_meanwhile) {
    struct wait_hint mine = {0}, runner = {.cpu = (uint32_t)runner_cpu};
    struct host_line line = {.runners = 1};
    cpu_set_t during;
    pthread_t thread;
    s.news = s.asleep = 0;
    CHECK(sem_init(&s.bell, 0, 0) == 0);
    shmb_waiter_init(&s.waiter, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&s.waiter, &mine);
    s.waiter.host = &line;
    s.waiter.peer = &runner;
    s.waiter.statistics.usual = SECOND_NS; /* waits are too long to spin */
    s.waiter.statistics.yields_from = INT64_MAX;
    FILE *file = tmpfile();
    CHECK(file && fputs(loadavg, file) >= 0 && fflush(file) == 0);
    s.waiter.loadavg = fileno(file);
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    while (!atomic_load(&s.asleep)) sched_yield();
    CHECK(sched_getaffinity(s.thread, sizeof during, &during) == 0);
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
    during = sleeps(first, suffice, NULL);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &all));
    during = sleeps(first, suffice, &other);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &other));
    during = sleeps(first, "9.10 1.01 1.42 9000/9136 1655\n", NULL); /* too many run */
    CHECK(CPU_EQUAL(&during, &all) && CPU_EQUAL(&s.after, &all));
    during = sleeps(first, "", NULL); /* no /proc */
    CHECK(CPU_EQUAL(&during, &all));
    during = sleeps(CPU_SETSIZE, suffice, NULL); /* a lie */
    CHECK(CPU_EQUAL(&during, &all));
    CHECK(sched_setaffinity(0, sizeof near, &near) == 0);
    during = sleeps(first, "0.10 1.01 1.42 1/136 1655\n", NULL);
    CHECK(CPU_EQUAL(&during, &near) && CPU_EQUAL(&s.after, &near));
    return 0;
}
