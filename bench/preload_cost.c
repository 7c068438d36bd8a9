/* The usual work of a program without a channel: reads and writes of one byte, and opens and
 * closes. Prints nanoseconds per call, the median of blocks of 1000.
 *     preload_cost CALLS */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void transfer(int in, int out) {
    char byte;
    if (read(in, &byte, 1) != 1 || write(out, &byte, 1) != 1) exit(1);
}

static void reopen(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || close(fd)) exit(1);
}

int main(int argc, char **argv) {
    int blocks = argc == 2 ? atoi(argv[1]) / BLOCK : 0;
    if (blocks < 1) {
        fprintf(stderr, "usage: preload_cost CALLS\n");
        return 2;
    }
    int in = open("/dev/zero", O_RDONLY), out = open("/dev/null", O_WRONLY);
    double *times[2] = {malloc((size_t)blocks * sizeof(double)),
                        malloc((size_t)blocks * sizeof(double))};
    if (in < 0 || out < 0 || !times[0] || !times[1]) return 1;
    for (int b = 0; b < blocks; b++) {
        double start = now();
        for (int i = 0; i < BLOCK / 2; i++) transfer(in, out);
        double middle = now();
        for (int i = 0; i < BLOCK / 2; i++) reopen();
        times[0][b] = (middle - start) / BLOCK;
        times[1][b] = (now() - middle) / BLOCK;
    }
    for (int i = 0; i < 2; i++) {
        qsort(times[i], (size_t)blocks, sizeof(double), compare);
        printf("%.2f\n", times[i][blocks / 2]);
    }
}
