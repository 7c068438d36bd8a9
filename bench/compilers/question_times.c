/* Preloaded into a compiler: appends the start and the end of each question to $QUESTION_TIMES, in
 * ns, an int64 each. A question is a call of shmb_evaluate_number; from one thread at a time. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "shmbridge.h"

enum { MOST = 1 << 20 };

static int64_t times[MOST][2];
static size_t count;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void add(int64_t start) {
    if (count == MOST) return;
    times[count][0] = start;
    times[count++][1] = now();
}

shmb_status shmb_evaluate_number(shmb_runner *r, shmb_dtype dtype, void *advice) {
    static shmb_status (*call)(shmb_runner *, shmb_dtype, void *);
    if (!call) *(void **)&call = dlsym(RTLD_NEXT, "shmb_evaluate_number");
    int64_t start = now();
    shmb_status status = call(r, dtype, advice);
    add(start);
    return status;
}

static void __attribute__((destructor)) write_times(void) {
    const char *path = getenv("QUESTION_TIMES");
    FILE *file = path && count ? fopen(path, "ab") : NULL;
    if (!file) return;
    fwrite(times, sizeof *times, count, file);
    fclose(file);
}
