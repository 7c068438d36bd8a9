/* A host sleeps on the CPU of its only runner, or with a runner for each CPU on that of the last
 * request. While CPUs are idle, a host with one runner may run nowhere else until it wakes. Then it
 * gets its CPUs back, unless another program chose others. */
#include "bridge.h"

#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"

enum { WAITS = 20 };

/* The only CPU of the last set that had one, or -1: in place of the C library's. */
static _Atomic int sent_to = -1;

int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *set) {
    for (int i = 0; CPU_COUNT(set) == 1 && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set)) sent_to = i;
    return (int)syscall(SYS_sched_setaffinity, thread, size, set);
}

static struct sleeper {
    struct waiter waiter;
    _Atomic uint32_t asleep, news;
    _Atomic pid_t thread;
    struct semaphore bell;
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
    s.bell.count = 0;
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
    shmb_semaphore_post(&s.bell);
    CHECK(pthread_join(thread, NULL) == 0);
    fclose(file);
    return during;
}

static int looked_from, slept_on, went, stayed;

/* Of a wait that finds nothing: the last look but one comes just before the sleep. */
static bool look_where(void *context) {
    cpu_set_t now;
    slept_on = looked_from;
    looked_from = sched_getcpu();
    stayed += sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1;
    return (void)context, false;
}

/* Waits, asked from another CPU or from its own. Afterwards it may run anywhere again. */
static void sleep_when_asked(struct waiter *w, struct wait_hint *asker, bool here) {
    cpu_set_t all, now;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int i = went = stayed = 0; i < WAITS; i++) {
        struct waiter fresh = *w;
        int before = sched_getcpu(), from = 0;
        while (!CPU_ISSET(from, &all) || (from == before) != here) from++;
        atomic_store(&asker->cpu, (uint32_t)from);
        shmb_waiter_wait(&fresh, look_where, NULL, &s.asleep, &s.bell,
                         shmb_clock_ns() + 1000 * 1000);
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &all));
        went += slept_on != before;
    }
}

static void a_host_sleeps_where_it_is_asked_next(void) {
    struct wait_hint mine = {0}, asker = {0};
    struct host_line host = {0};
    struct waiter w;
    s.bell.count = 0;
    shmb_waiter_init(&w, SHMB_WAIT_ADAPTIVE);
    shmb_waiter_tell(&w, &mine);
    w.statistics.yields_from = INT64_MAX;
    w.host = &host;
    w.asker = &asker;
    atomic_store(&host.runners, (uint32_t)__builtin_popcountll(atomic_load(&mine.cpus)));
    sleep_when_asked(&w, &asker, false);
    CHECK(went < WAITS / 2 && !stayed); /* it does not follow */
    w.loadavg = memfd_create("busy", 0);
    CHECK(write(w.loadavg, "0 0 0 9999/9999 1", 17) == 17);
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && !stayed); /* a runner for each CPU */
    atomic_store(&host.runners, 1);
    w.peer = &asker;
    sleep_when_asked(&w, &asker, false);
    CHECK(went < WAITS / 2 && !stayed); /* one runner: both sides spin */
    w.statistics.usual = 1000 * 1000;
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && !stayed); /* no idle CPU would wake it */
    CHECK(pwrite(w.loadavg, "0 0 0 0001/9999 1", 17, 0) == 17);
    sleep_when_asked(&w, &asker, false);
    CHECK(went >= WAITS / 2 && stayed >= WAITS / 2);
    atomic_store(&host.received, 5000);
    sleep_when_asked(&w, &asker, true);
    CHECK(went >= WAITS / 2 && !stayed); /* asked at once all the time, where it cannot spin */
    shmb_waiter_free(&w);
}

/* With as many runners as CPUs, a host goes to the CPU of the runner that asked last. */
static void a_host_sleeps_where_it_was_asked_last(void) {
    struct bridge b;
    bridge_open(&b, "asked-last", small_plan, SHMB_WAIT_ADAPTIVE);
    struct segment segment = bridge_segment(&b);
    shmb_runner *runners[] = {bridge_connect(&b, ""), bridge_connect(&b, "")};
    atomic_store(&shmb_segment_host_line(&segment)->wait_hint.cpus, (uint64_t)3);
    for (int last = 0; last < 2; last++) {
        int followed = 0;
        shmb_set_i64(runners[last], "x", 0);
        CHECK_STATUS(runners[last], bridge_turn(&b, runners[last], SHMB_INT64), SHMB_OK);
        for (int i = 0; i < WAITS; i++) {
            cpu_set_t all;
            int cpu = 0, here = sched_getcpu();
            CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
            while (!CPU_ISSET(cpu, &all) || cpu == here) cpu++;
            for (int k = 0; k < 2; k++)
                atomic_store(&shmb_segment_runner_line(&segment, (uint32_t)k)->wait_hint.cpu,
                             (uint32_t)(k == last ? cpu : CPU_SETSIZE));
            sent_to = -1;
            CHECK(shmb_host_receive(b.host, 1000 * 1000) < 0);
            followed += sent_to == cpu;
        }
        CHECK(followed >= WAITS / 2);
    }
    for (int k = 0; k < 2; k++) shmb_close(runners[k]);
    shmb_segment_detach(&segment);
    bridge_close(&b);
}

int main(void) {
    cpu_set_t all, during, other;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) < 2) return 0;
    a_host_sleeps_where_it_is_asked_next();
    a_host_sleeps_where_it_was_asked_last();
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
