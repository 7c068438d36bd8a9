/* Threads that open a runner each of one URL at the same moment, and ask: onnx_threads URL THREADS
 * QUESTIONS. The model is argmax(2 - x) of float32[8]. Half of the runners have their features
 * bound; the first is interrupted all the time, the second has a deadline. Prints "ok". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shmbridge.h"

static const char *url;
static int questions;
static pthread_barrier_t begin;
static pthread_mutex_t closing = PTHREAD_MUTEX_INITIALIZER;
static shmb_runner *harassed; /* with closing */

static void harass(shmb_runner *r) {
    pthread_mutex_lock(&closing);
    harassed = r;
    pthread_mutex_unlock(&closing);
}

static void *interrupt(void *ended) {
    while (!*(_Atomic int *)ended) {
        pthread_mutex_lock(&closing);
        shmb_interrupt(harassed); /* NULL is fine */
        pthread_mutex_unlock(&closing);
        usleep(50);
    }
    return NULL;
}

static void *ask(void *argument) {
    int number = *(int *)argument;
    const int64_t dims[] = {8};
    shmb_runner *r;
    pthread_barrier_wait(&begin);
    if (shmb_open(url, NULL, &r))
        return fprintf(stderr, "%s\n", shmb_error_message(r)), exit(1), NULL;
    if (number == 0) harass(r);
    if (number == 1) shmb_set_deadline(r, 10);
    float *bound = number % 2 ? shmb_bind(r, "x", SHMB_FLOAT32, 1, dims) : NULL;
    for (int i = 0; i < questions; i++) {
        float *x = bound ? bound : shmb_feature_f32(r, "x", 8);
        for (int k = 0; k < 8; k++) x[k] = k == (number + i) % 8 ? -1 : (float)k;
        int64_t advice = -1;
        shmb_status status = shmb_evaluate_i64(r, &advice);
        if (number == 0 && status == SHMB_INTERRUPTED) continue;
        if (status || advice != (number + i) % 8) {
            fprintf(stderr, "thread %d, question %d: %d %s, %lld\n", number, i, (int)status,
                    shmb_error_message(r), (long long)advice);
            exit(1);
        }
    }
    if (number == 0) harass(NULL);
    shmb_close(r);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int count = atoi(argv[2]), numbers[64];
    pthread_t threads[65];
    url = argv[1];
    questions = atoi(argv[3]);
    pthread_barrier_init(&begin, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, ask, &numbers[i])) return 3;
    }
    _Atomic int ended = 0;
    if (pthread_create(&threads[count], NULL, interrupt, &ended)) return 3;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    ended = 1;
    pthread_join(threads[count], NULL);
    printf("ok\n");
    return 0;
}
