/* The time of an evaluation through a runner in this process, and of the same model called directly
 * (direct.h).
 *     in_process WORKLOAD URL THREADS ROUNDS MILLISECONDS ARGUMENTS…     ARGUMENTS: direct_load's
 * WORKLOAD is DTYPE:COUNTxROWSxELEMENTS: COUNT inputs f32 or i64, "x" or "x0", "x1", …, of ROWS x
 * ELEMENTS, or of ELEMENTS if ROWS is 0. Each line is a round: ns of an evaluation directly,
 * through a runner, and through one with bound features, in alternating blocks. One thread: the
 * median over batches of 32. Several: the block's time over the evaluations of all. Every way
 * writes every element of its features, and reads the first byte of the answer. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "block.h"
#include "direct.h"

enum { INPUTS = 64, BATCH = 32, MOST_THREADS = 64 };
enum way { DIRECT, RUNNER, BOUND, WAYS };

static shmb_tensor inputs[INPUTS];
static int count;
static int64_t dims[2], length_ns;
static enum way way;
static pthread_barrier_t begin, end;
static _Atomic int64_t done;

struct thread {
    void *use;
    shmb_runner *runner, *bound;
    void *memory[INPUTS];
    int64_t value;
};

static void fill(void *to, const shmb_tensor *t, int64_t value) {
    if (t->dtype == SHMB_FLOAT32)
        for (int64_t i = 0; i < t->size; i++) ((float *)to)[i] = (float)(value + i) / 64;
    else
        for (int64_t i = 0; i < t->size; i++) ((int64_t *)to)[i] = value + i;
}

static void check(shmb_runner *r, shmb_status status) {
    if (!status) return;
    fprintf(stderr, "%s: %s\n", shmb_strerror(status), shmb_error_message(r));
    exit(1);
}

static volatile uint8_t seen;

static void evaluate(struct thread *t) {
    int64_t value = ++t->value & 63;
    if (way == DIRECT) {
        for (int i = 0; i < count; i++) fill(direct_input(t->use, (size_t)i), &inputs[i], value);
        seen = *(const uint8_t *)direct_run(t->use);
        return;
    }
    shmb_runner *r = way == RUNNER ? t->runner : t->bound;
    shmb_tensor advice;
    for (int i = 0; i < count; i++) {
        const shmb_tensor *in = &inputs[i];
        fill(way == BOUND ? t->memory[i] : shmb_feature(r, in->name, in->dtype, in->rank, in->dims),
             in, value);
    }
    check(r, shmb_evaluate(r));
    check(r, shmb_advice_at(r, 0, &advice));
    seen = *(const uint8_t *)advice.data;
}

static void open_thread(struct thread *t, const char *url) {
    t->use = direct_open();
    check(t->runner, shmb_open(url, NULL, &t->runner));
    check(t->bound, shmb_open(url, NULL, &t->bound));
    for (int i = 0; i < count; i++)
        t->memory[i] =
            shmb_bind(t->bound, inputs[i].name, inputs[i].dtype, inputs[i].rank, inputs[i].dims);
}

static double alone(struct thread *t) {
    static int64_t batches[MAX_SAMPLES];
    int n = 0;
    int64_t start = now_ns(), now;
    do evaluate(t);
    while (now_ns() - start < length_ns / 5);
    start = now_ns();
    do {
        int64_t t0 = now_ns();
        for (int i = 0; i < BATCH; i++) evaluate(t);
        now = now_ns();
        batches[n++] = now - t0;
    } while (n < MAX_SAMPLES && now - start < length_ns);
    qsort(batches, (size_t)n, sizeof *batches, by_value);
    return (double)batches[n / 2] / BATCH;
}

static void *work(void *thread) {
    for (;;) {
        pthread_barrier_wait(&begin);
        int64_t n = 0, start = now_ns();
        for (; now_ns() - start < length_ns; n += BATCH)
            for (int i = 0; i < BATCH; i++) evaluate(thread);
        done += n;
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static double together(void) {
    done = 0;
    int64_t start = now_ns(); /* after the barrier the threads may take both CPUs first */
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    return (double)(now_ns() - start) / (double)done;
}

static void describe(const char *workload) {
    char dtype[4] = "";
    long long rows = 0, elements = 0;
    if (sscanf(workload, "%3[fi3246]:%dx%lldx%lld", dtype, &count, &rows, &elements) != 4 ||
        count < 1 || count > INPUTS)
        exit(2);
    dims[0] = rows ? rows : elements;
    dims[1] = elements;
    for (int i = 0; i < count; i++) {
        char *name = malloc(16);
        if (count == 1) strcpy(name, "x");
        else snprintf(name, 16, "x%d", i);
        inputs[i] = (shmb_tensor){.name = name,
                                  .dtype = *dtype == 'f' ? SHMB_FLOAT32 : SHMB_INT64,
                                  .rank = rows ? 2 : 1,
                                  .dims = dims,
                                  .size = rows ? rows * elements : elements};
    }
}

int main(int argc, char **argv) {
    static struct thread threads[MOST_THREADS];
    if (argc < 7) return 2;
    int number = atoi(argv[3]), rounds = atoi(argv[4]);
    length_ns = atoll(argv[5]) * 1000000;
    describe(argv[1]);
    direct_load(argv + 6, inputs, (size_t)count);
    for (int i = 0; i < number; i++) open_thread(&threads[i], argv[2]);
    pthread_barrier_init(&begin, NULL, (unsigned)number + 1);
    pthread_barrier_init(&end, NULL, (unsigned)number + 1);
    for (int i = 0; number > 1 && i < number; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, work, &threads[i])) return 1;
    }
    for (int round = 0; round < rounds; round++) {
        for (way = DIRECT; way < WAYS; way++)
            printf("%.1f ", number > 1 ? together() : alone(threads));
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
