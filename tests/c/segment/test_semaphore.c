/* A semaphore counts, wakes across processes, and ends each wait in time, whatever a liar does with
 * its word: writes to it, wakes or moves who sleeps there, or takes it for a lock. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "bridge.h"
#include "segment/semaphore.h"

enum { MS = 1000 * 1000, LONG_NS = 2000 * MS, LIE_NS = 200 * MS };

static struct semaphore *shared; /* [3], also with a forked child */
static _Atomic bool ending;

static void posts_are_counted(void) {
    for (int i = 0; i < 3; i++) shmb_semaphore_post(shared);
    CHECK(atomic_load(&shared->count) == 3 && shmb_semaphore_try_wait(shared));
    CHECK(shmb_semaphore_wait(shared, LONG_NS) == 0 && shmb_semaphore_wait(shared, 0) == 0);
    CHECK(!shmb_semaphore_try_wait(shared) && shmb_semaphore_wait(shared, 0) == ETIMEDOUT);
    CHECK(shmb_semaphore_wait(shared, -1) == ETIMEDOUT);
    int64_t began = shmb_clock_ns();
    CHECK(shmb_semaphore_wait(shared, 20 * MS) == ETIMEDOUT && shmb_clock_ns() - began >= 20 * MS);
    for (int i = 0; i < 3; i++) shmb_semaphore_post(shared);
    shmb_semaphore_clear(shared);
    CHECK(!shmb_semaphore_try_wait(shared));
}

/* Waits until it is its turn, and passes that on. */
static void take_turns(int side) {
    struct semaphore *turn = shared + 2;
    for (uint32_t i = (uint32_t)side; i < 1000; i += 2) {
        while (atomic_load(&turn->count) != i) CHECK(!shmb_semaphore_wait(shared + side, LONG_NS));
        atomic_store(&turn->count, i + 1);
        shmb_semaphore_post(shared + !side);
    }
}

static void another_process_is_woken_for_each_post(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    take_turns(!pid);
    if (!pid) _exit(0);
    CHECK(process_wait(pid) == 0);
    shmb_semaphore_clear(shared);
    shmb_semaphore_clear(shared + 1);
}

static void nothing(int number) { (void)number; }

static void a_signal_ends_a_wait(void) {
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = nothing, .sa_flags = SA_RESTART}, NULL);
    ualarm(2000, 2000);
    CHECK(shmb_semaphore_wait(shared, LONG_NS) == EINTR);
    ualarm(0, 0);
}

static long futex(int operation, uint32_t value, uintptr_t second, void *other, uint32_t last) {
    return syscall(SYS_futex, &shared->count, operation, value, second, other, last);
}

static void write_anything(uint64_t n) { atomic_store(&shared->count, (uint32_t)(n * 0x9e3779b1)); }
static void toggle(uint64_t n) { atomic_store(&shared->count, n & 1); }
static void wake(uint64_t n) { futex(FUTEX_WAKE, (uint32_t)n, 0, NULL, 0); }
static void move(uint64_t n) { futex(FUTEX_REQUEUE, 0, n % 2, &shared[1].count, 0); }
static void move_to_a_lock(uint64_t n) {
    uint32_t value = atomic_load(&shared->count);
    futex(FUTEX_CMP_REQUEUE_PI, 1, n % 2, &shared[1].count, value);
}
static void lock(uint64_t n) {
    static const struct timespec now = {0};
    if (n % 2) futex(FUTEX_UNLOCK_PI, 0, 0, NULL, 0);
    else futex(FUTEX_LOCK_PI, 0, (uintptr_t)&now, NULL, 0);
}

static void *lie(void *context) {
    void (*does)(uint64_t) = *(void (**)(uint64_t))context;
    for (uint64_t n = 0; !atomic_load(&ending); n++) does(n);
    return NULL;
}

static _Atomic uint32_t asleep;
static bool never(void *context) { return (void)context, false; }

/* Each wait ends, and after the first 64 they are a millisecond apart. A liar that has no CPU for
 * 5 ms, as on a busy machine, looks honest, and has 64 again. */
static void a_liar_costs_little(void (*does)(uint64_t)) {
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
    atomic_store(&ending, false);
    pthread_t liar = thread_start(lie, &does);
    int64_t until = shmb_clock_ns() + LIE_NS, waits = 0;
    for (; shmb_clock_ns() < until; waits++) {
        shmb_waiter_wait(&w, never, NULL, &asleep, shared, until);
        shmb_semaphore_post(shared);
    }
    CHECK(waits < 64 * (1 + LIE_NS / (5 * MS)) + 3 * LIE_NS / MS);
    atomic_store(&ending, true);
    pthread_join(liar, NULL);
    shmb_semaphore_clear(shared);
}

int main(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    posts_are_counted();
    another_process_is_woken_for_each_post();
    a_signal_ends_a_wait();
    void (*const lies[])(uint64_t) = {write_anything, toggle, wake, move, move_to_a_lock, lock};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) a_liar_costs_little(lies[i]);
}
