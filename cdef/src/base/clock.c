#include "base/clock.h"

enum { RETRY_NS = 2 * 1000 * 1000 };

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

int64_t shmb_clock_after(double seconds) {
    if (!(seconds > 0)) return shmb_clock_ns();
    return shmb_clock_ns() + (int64_t)(seconds < 1e9 ? seconds * 1e9 : 1e18);
}

bool shmb_sleep(int64_t ns) {
    struct timespec t = timespec_of(ns);
    return nanosleep(&t, NULL) == 0;
}

void shmb_pause_before_retry(int64_t until) {
    int64_t left = until - shmb_clock_ns(), ns = left < RETRY_NS ? left : RETRY_NS;
    if (ns > 0) shmb_sleep(ns);
}
