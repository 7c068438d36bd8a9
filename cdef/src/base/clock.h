/* Time: nanoseconds of CLOCK_MONOTONIC. */
#ifndef SHMB_CLOCK_H
#define SHMB_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* a slice: who waits asks after its peer at least this often */
enum { SECOND_NS = 1000 * 1000 * 1000, SLICE_NS = 100 * 1000 * 1000 };

int64_t shmb_clock_ns(void);
/* The same, some milliseconds behind, in a fifth of the time. */
int64_t shmb_clock_coarse_ns(void);
/* That many seconds, at least 1 ns; INT64_MAX for infinity, or more than the clock can hold. */
int64_t shmb_clock_span(double seconds);
/* ns after time, both 0 or more; INT64_MAX where the clock cannot hold that. */
static inline int64_t later(int64_t time, int64_t ns) {
    return ns < INT64_MAX - time ? time + ns : INT64_MAX;
}
static inline int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }
static inline struct timespec timespec_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}
/* false: a signal ended it, as errno says */
bool shmb_sleep(int64_t ns);

#endif
