/* LLVM's interactive channel without LLVM: asks for TURNS priorities through BASE.in and BASE.out
 * as a compiler would, and prints the median round trip, in nanoseconds, of batches of 16.
 *     llvm_turns BASE TURNS */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 16 };

static const char header[] =
    "{\"features\":[{\"name\":\"li_size\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"
    "{\"name\":\"stage\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},{\"name\":\"weight\",\"type\":\"float\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"priority\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n{\"context\":\"sqlite3VdbeExec\"}\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int open_end(const char *base, const char *end, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", base, end);
    int fd = open(path, flags | O_CLOEXEC, 0666);
    if (fd < 0) perror(path), exit(1);
    return fd;
}

static void turn(int in, int out, int64_t number) {
    char text[128];
    int64_t features[2] = {number * 16, 1};
    float priority, weight = 1;
    size_t n = (size_t)sprintf(text, "{\"observation\":%lld}\n", (long long)number);
    memcpy(text + n, features, sizeof features);
    memcpy(text + n + sizeof features, &weight, sizeof weight);
    n += sizeof features + sizeof weight;
    text[n++] = '\n';
    if (write(out, text, n) != (ssize_t)n ||
        read(in, &priority, sizeof priority) != sizeof priority || priority != (float)features[0]) {
        fprintf(stderr, "turn %lld: expected %lld as priority\n", (long long)number,
                (long long)features[0]);
        exit(1);
    }
}

int main(int argc, char **argv) {
    int batches = argc == 3 ? atoi(argv[2]) / BATCH : 0;
    if (batches < 1) {
        fprintf(stderr, "usage: llvm_turns BASE TURNS\n");
        return 2;
    }
    double *times = malloc((size_t)batches * sizeof *times);
    int in = open_end(argv[1], ".in", O_RDONLY),
        out = open_end(argv[1], ".out", O_WRONLY | O_CREAT | O_TRUNC);
    if (!times || write(out, header, sizeof header - 1) != sizeof header - 1) return 1;
    for (int64_t i = 0; i < BATCH * 64; i++) turn(in, out, i);
    for (int b = 0; b < batches; b++) {
        double start = now();
        for (int64_t i = 0; i < BATCH; i++) turn(in, out, b * BATCH + i);
        times[b] = (now() - start) / BATCH;
    }
    close(in);
    close(out);
    qsort(times, (size_t)batches, sizeof *times, compare);
    printf("%.0f\n", times[batches / 2]);
}
