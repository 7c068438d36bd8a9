/* Do a caller's pointers lead to memory? */
#ifndef SHMB_POINTERS_H
#define SHMB_POINTERS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 /* or a multiple */, SIGNALS = 8 /* bytes of the kernel's set */ };

/* The kernel answers EFAULT where a caller's pointer leads nowhere, and so must we. It is asked
 * with a system call for each page that does nothing else: no signal mask is set in an unknown way.
 */
static inline bool can_read(uintptr_t at, size_t left) {
    (void)left;
    return syscall(SYS_rt_sigprocmask, -1, at & ~(uintptr_t)(SIGNALS - 1), NULL, SIGNALS) == 0 ||
           errno != EFAULT;
}

/* Of memory that is written next anyway: it gets the processor's number, which is quick, or a
 * random byte. */
static inline bool can_write(uintptr_t at, size_t left) {
    bool quick = left >= sizeof(unsigned) && at % sizeof(unsigned) == 0;
    return (quick ? syscall(SYS_getcpu, at, NULL, NULL)
                  : syscall(SYS_getrandom, at, 1, 1 /* without waiting */)) >= 0 ||
           errno != EFAULT;
}

static inline bool can_all(bool (*can)(uintptr_t, size_t), const void *bytes, size_t size) {
    uintptr_t at = (uintptr_t)bytes, end = at + size;
    while (at < end && can(at, end - at)) at = (at | (PAGE - 1)) + 1;
    return at >= end && end >= (uintptr_t)bytes;
}

#endif
