#include "segment/semaphore.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/order.h"

enum {
    FUTEX_WAIT = 0, /* as in linux/futex.h, which musl does not bring along */
    FUTEX_WAKE = 1,
    NAP_NS = 1000 * 1000 /* where the kernel refuses to let us sleep */
};

/* Not private: the other side is another process. The time is relative, so that setting the
 * system's clock changes nothing. */
static int futex(struct semaphore *s, int operation, uint32_t value, const struct timespec *time) {
    return syscall(SYS_futex, &s->count, operation, value, time, NULL, 0) < 0 ? errno : 0;
}

void shmb_semaphore_post(struct semaphore *s) {
    add_release(&s->count, 1);
    futex(s, FUTEX_WAKE, 1, NULL);
}

bool shmb_semaphore_try_wait(struct semaphore *s) {
    uint32_t count = load_relaxed(&s->count);
    return count && swap_acquire(&s->count, count, count - 1);
}

int shmb_semaphore_wait(struct semaphore *s, int64_t ns) {
    struct timespec time = timespec_of(ns);
    if (shmb_semaphore_try_wait(s)) return 0;
    if (ns <= 0) return ETIMEDOUT;
    int error = futex(s, FUTEX_WAIT, 0, &time);
    if (error == ETIMEDOUT || error == EINTR) return error;
    if (error && error != EAGAIN) shmb_sleep(earlier(ns, NAP_NS)); /* a sandbox, say */
    shmb_semaphore_try_wait(s);
    return 0;
}

void shmb_semaphore_clear(struct semaphore *s) { exchange_acquire(&s->count, 0); }
