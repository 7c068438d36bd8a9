/* One situation, one way of waiting: a host in C and runners in C, for a while.
 *     waiting KIND RUNNERS WARM_MS MS SHAPE HOST_CPUS RUNNER_CPUS HOST_NICE RUNNER_NICE
 * KIND: pipe, semaphore, or a wait of the library's: adaptive, spin, block. SHAPE: think:US computes
 * between two questions; burst:COUNT:US asks COUNT times, then sleeps; make:DIRECTORY runs make -j4
 * there, whose targets call `waiting target FD KIND I`. CPUS: a mask, 0 for any. Prints the ns that
 * it took, questions, CPU ns of both sides without the runners' computing in between, and the ns of
 * p50 and of p99. */
#include "bridge.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

enum {
    FEATURES = 500,
    MAX_RUNNERS = 64,
    STEPS = 16, /* of the histogram, for each power of two */
    BINS = 40 * STEPS,
    QUESTIONS_OF_A_TARGET = 2000,
    THINK_OF_A_TARGET = 10 /* us */
};

/* Each runner's own data. */
struct turn {
    _Alignas(128) sem_t ask;
    _Alignas(128) sem_t answer;
    _Alignas(128) float message[FEATURES];
    _Alignas(128) _Atomic uint64_t count; /* answered while it counts */
    int64_t cpu_ns;                       /* of the runner meanwhile, without its computing */
    uint64_t bins[BINS];
    int pipes[2][2]; /* to the host, and back */
};

static struct shared {
    _Atomic int phase; /* 0 warming up, 1 it counts, 2 over */
    char name[64];     /* of the bridge */
    sem_t ready;
    double loops; /* of compute, in a microsecond */
    struct turn turns[MAX_RUNNERS];
} *s;

static const char *kind;
static volatile float first; /* what the model would have read */

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static int64_t ns_of(clockid_t clock) {
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the ns of CPU that it took. */
static int64_t compute(double us) {
    if (us <= 0) return 0;
    int64_t start = ns_of(CLOCK_PROCESS_CPUTIME_ID);
    for (volatile uint64_t i = (uint64_t)(us * s->loops); i; i--) continue;
    return ns_of(CLOCK_PROCESS_CPUTIME_ID) - start;
}

/* The best of several: other processes may run. */
static void calibrate(void) {
    s->loops = 1000;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        int64_t t = compute(100);
        if (t < best) best = t;
    }
    s->loops = 100e6 / (double)best;
}

static bool transfer(bool writing, int fd, void *bytes, size_t count) {
    for (char *at = bytes; count;) {
        ssize_t n = writing ? write(fd, at, count) : read(fd, at, count);
        if (n <= 0) return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

/* ---- The host: a loop over its channels, or a thread for each pair of pipes or semaphores ---- */

static void *serve_pipe(void *context) {
    struct turn *t = context;
    float message[FEATURES], answer = 1;
    while (transfer(false, t->pipes[0][0], message, sizeof message)) {
        first = message[0];
        if (!transfer(true, t->pipes[1][1], &answer, sizeof answer)) break;
    }
    return NULL;
}

static void *serve_semaphore(void *context) {
    struct turn *t = context;
    while (sem_wait(&t->ask) == 0 || errno == EINTR) {
        first = t->message[0];
        sem_post(&t->answer);
    }
    return NULL;
}

static void serve(int runners) {
    if (is(kind, "pipe") || is(kind, "semaphore")) {
        pthread_t thread;
        for (int i = 0; i < runners; i++)
            CHECK(pthread_create(&thread, NULL, is(kind, "pipe") ? serve_pipe : serve_semaphore,
                                 &s->turns[i]) == 0);
        sem_post(&s->ready);
        for (;;) pause();
    }
    struct bridge b;
    shmb_plan plan = small_plan;
    plan.channels = (uint32_t)runners;
    bridge_open(&b, "waiting", plan,
                is(kind, "spin")    ? SHMB_WAIT_SPIN
                : is(kind, "block") ? SHMB_WAIT_BLOCK
                                    : SHMB_WAIT_ADAPTIVE);
    memcpy(s->name, b.name, sizeof s->name);
    sem_post(&s->ready);
    while (atomic_load(&s->phase) < 3) {
        int64_t key = shmb_host_receive(b.host, 100000000);
        if (key < 0) continue;
        first = *(const float *)shmb_host_message(b.host, key)->tensors[0].data;
        shmb_host_reply_i64(b.host, key, false, 1);
    }
    bridge_close(&b);
}

/* ---- A runner ---- */

static shmb_runner *runner;

static void open_runner(void) {
    char url[128];
    if (is(kind, "pipe") || is(kind, "semaphore")) return;
    snprintf(url, sizeof url, "shm://%s?wait=%s", s->name, kind);
    CHECK_STATUS(runner, shmb_open(url, NULL, &runner), SHMB_OK);
}

static void trip(struct turn *t) {
    static int value;
    int64_t advice;
    value++;
    if (is(kind, "pipe")) {
        memset(t->message, value, sizeof t->message);
        CHECK(transfer(true, t->pipes[0][1], t->message, sizeof t->message) &&
              transfer(false, t->pipes[1][0], &advice, sizeof(float)));
    } else if (is(kind, "semaphore")) {
        memset(t->message, value, sizeof t->message);
        sem_post(&t->ask);
        while (sem_wait(&t->answer)) continue;
    } else {
        memset(shmb_feature_f32(runner, "features", FEATURES), value, sizeof t->message);
        CHECK_STATUS(runner, shmb_evaluate_i64(runner, &advice), SHMB_OK);
    }
}

static int bin_of(int64_t ns) {
    int power = 63 - __builtin_clzll((uint64_t)ns | STEPS);
    int bin = (power - 4) * STEPS + (int)((uint64_t)ns >> (power - 4)) - STEPS;
    return bin < BINS ? bin : BINS - 1;
}

static double ns_of_bin(int bin) { return ((bin % STEPS) + STEPS + 0.5) * (1ull << bin / STEPS); }

static void ask(struct turn *t) {
    bool counts = atomic_load(&s->phase) == 1;
    int64_t start = ns_of(CLOCK_MONOTONIC);
    trip(t);
    if (!counts) return;
    t->bins[bin_of(ns_of(CLOCK_MONOTONIC) - start)]++;
    if (atomic_load(&s->phase) == 1)
        atomic_store_explicit(&t->count, t->count + 1, memory_order_relaxed);
}

static void run(struct turn *t, const char *shape) {
    int count = 0;
    double us = 0;
    bool think = sscanf(shape, "think:%lf", &us) == 1;
    if (!think) CHECK(sscanf(shape, "burst:%d:%lf", &count, &us) == 2);
    open_runner();
    for (bool counted = false; atomic_load(&s->phase) < 2;) {
        if (!counted && atomic_load(&s->phase) == 1) {
            counted = true;
            t->cpu_ns = -ns_of(CLOCK_PROCESS_CPUTIME_ID);
        }
        for (int i = 0; i < (think ? 1 : count); i++) ask(t);
        if (!think) usleep((useconds_t)us);
        else if (counted) t->cpu_ns -= compute(us);
        else compute(us);
    }
    if (t->cpu_ns) t->cpu_ns += ns_of(CLOCK_PROCESS_CPUTIME_ID);
    if (runner) shmb_close(runner);
}

static void be_target(int fd, int i) {
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(s != MAP_FAILED);
    open_runner();
    struct turn *t = &s->turns[i];
    for (int k = 0; k < QUESTIONS_OF_A_TARGET; k++) {
        ask(t);
        t->cpu_ns -= compute(THINK_OF_A_TARGET);
    }
    if (runner) shmb_close(runner);
    t->cpu_ns += ns_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* ---- The situation ---- */

static pid_t start_child(const char *mask, const char *niceness) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned long bits = strtoul(mask, NULL, 0);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int i = 0; i < 64; i++)
        if (bits >> i & 1) CPU_SET(i, &cpus);
    if (bits) CHECK(sched_setaffinity(0, sizeof cpus, &cpus) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, atoi(niceness)) == 0);
    return 0;
}

static int64_t cpu_of(pid_t child) {
    clockid_t clock;
    CHECK(clock_getcpuclockid(child, &clock) == 0);
    return ns_of(clock);
}

static double questions(void) {
    double sum = 0;
    for (int i = 0; i < MAX_RUNNERS; i++) sum += (double)s->turns[i].count;
    return sum;
}

static double quantile(double q) {
    double all = 0, below = 0;
    static double bins[BINS];
    for (int i = 0; i < MAX_RUNNERS; i++)
        for (int k = 0; k < BINS; k++) bins[k] += (double)s->turns[i].bins[k];
    for (int k = 0; k < BINS; k++) all += bins[k];
    for (int k = 0; k < BINS; k++)
        if ((below += bins[k]) > q * all) {
            memset(bins, 0, sizeof bins);
            return ns_of_bin(k);
        }
    return 0;
}

/* A make of targets that each compile a file and ask. */
static void make(int fd, const char *directory, const char *program) {
    char jobs[400];
    snprintf(jobs, sizeof jobs, "ASK=%s target %d %s", program, fd, kind);
    execlp("make", "make", "-s", "-B", "-j4", "-C", directory, jobs, (char *)NULL);
    _exit(1);
}

int main(int argc, char **argv) {
    if (argc == 5 && is(argv[1], "target")) {
        kind = argv[3];
        be_target(atoi(argv[2]), atoi(argv[4]));
        return 0;
    }
    if (argc < 10) return 2;
    kind = argv[1];
    int runners = atoi(argv[2]), fd = memfd_create("waiting", 0);
    const char *shape = argv[5];
    bool makes = strncmp(shape, "make:", 5) == 0;
    CHECK(runners <= MAX_RUNNERS && fd >= 0 && ftruncate(fd, sizeof *s) == 0);
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(s != MAP_FAILED && sem_init(&s->ready, 1, 0) == 0);
    for (int i = 0; i < runners; i++) {
        struct turn *t = &s->turns[i];
        CHECK(sem_init(&t->ask, 1, 0) == 0 && sem_init(&t->answer, 1, 0) == 0);
        if (is(kind, "pipe")) CHECK(pipe(t->pipes[0]) == 0 && pipe(t->pipes[1]) == 0);
    }
    calibrate();
    static pid_t children[MAX_RUNNERS + 1];
    if (!(children[0] = start_child(argv[6], argv[8]))) {
        serve(runners);
        return 0;
    }
    while (sem_wait(&s->ready)) continue;
    int started = makes ? 1 : runners;
    if (makes) s->phase = 1;
    for (int i = 0; i < started; i++) {
        if ((children[1 + i] = start_child(argv[7], argv[9]))) continue;
        if (makes) make(fd, shape + 5, argv[0]);
        run(&s->turns[i], shape);
        return 0;
    }
    usleep((useconds_t)(1000 * atoi(argv[3])));
    int64_t began = ns_of(CLOCK_MONOTONIC);
    int64_t cpu = cpu_of(children[0]);
    s->phase = 1;
    if (!makes) usleep((useconds_t)(1000 * atoi(argv[4])));
    else CHECK(waitpid(children[1], &(int){0}, 0) == children[1]);
    int64_t took = ns_of(CLOCK_MONOTONIC) - began;
    double count = questions();
    cpu = cpu_of(children[0]) - cpu;
    s->phase = 2;
    for (int i = 1; i <= started && !makes; i++) waitpid(children[i], NULL, 0);
    for (int i = 0; i < runners; i++) cpu += s->turns[i].cpu_ns;
    s->phase = 3;
    if (!is(kind, "pipe") && !is(kind, "semaphore")) waitpid(children[0], NULL, 0);
    else kill(children[0], SIGKILL);
    printf("%lld %.0f %lld %.0f %.0f\n", (long long)took, count, (long long)cpu, quantile(0.5),
           quantile(0.99));
    return 0;
}
