#include "base/clock.h"

static int64_t time_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

int64_t shmb_clock_ns(void) { return time_of(CLOCK_MONOTONIC); }

int64_t shmb_clock_coarse_ns(void) { return time_of(CLOCK_MONOTONIC_COARSE); }

int64_t shmb_clock_span(double seconds) {
    return seconds < 1e9 ? (int64_t)(seconds * 1e9) + (seconds < 1e-9) : INT64_MAX;
}

bool shmb_sleep(int64_t ns) {
    struct timespec t = timespec_of(ns);
    return nanosleep(&t, NULL) == 0;
}
