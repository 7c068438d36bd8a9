/* The near side of every C pair: reads lines of "BYTES NANOSECONDS", makes round trips for that
 * long, and prints a line: the median ns of a round trip in a batch, then single round trips, timed
 * separately (which adds a clock read). */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SAMPLES = 4096 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Until standard input ends. */
static inline void blocks(void (*trip)(size_t bytes)) {
    static int64_t batches[MAX_SAMPLES], singles[MAX_SAMPLES];
    size_t bytes;
    long long length;
    printf("ready\n");
    fflush(stdout);
    while (scanf("%zu %lld", &bytes, &length) == 2) {
        int batch = bytes < 10000 ? 32 : 4, n = 0;
        if (bytes >= 1000000) batch = 1;
        int64_t start = now_ns(), t;
        do trip(bytes);
        while (now_ns() - start < length / 5); /* the far side wakes up, caches fill */
        do {
            int64_t t0 = now_ns();
            for (int i = 0; i < batch; i++) trip(bytes);
            int64_t t1 = now_ns();
            trip(bytes);
            t = now_ns();
            batches[n] = (t1 - t0) * 1000 / batch; /* ps */
            singles[n] = t - t1;
        } while (++n < MAX_SAMPLES && t - start < length);
        qsort(batches, (size_t)n, sizeof *batches, by_value);
        printf("%.3f", (double)batches[n / 2] / 1000);
        for (int i = 0; i < n; i++) printf(" %lld", (long long)singles[i]);
        printf("\n");
        fflush(stdout);
    }
}

#endif
