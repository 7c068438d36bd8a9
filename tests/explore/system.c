/* The system calls and library functions that the core uses, within the explorer. The linker sends
 * them here (--wrap). A file descriptor is 100 for the host, 200 for the runner, and so on, plus a
 * number: locks are held by open files. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "explore.h"
#include "process/fork.h"

#define SECOND 1000000000LL

/* ---- Memory: each thread has its own, so that addresses do not depend on the others ---- */

struct block {
    size_t bytes;
    bool used;
    _Alignas(64) char data[];
};

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void __real_free(void *p);

void *__wrap_malloc(size_t bytes) {
    if (explore_thread() < 0) return __real_malloc(bytes);
    struct thread *t = &world.threads[explore_thread()];
    size_t needed = (sizeof(struct block) + bytes + 63) & ~(size_t)63;
    for (size_t at = 0; at < t->heap_used;) {
        struct block *b = (struct block *)(t->heap + at);
        if (!b->used && b->bytes == needed) {
            b->used = true;
            return b->data;
        }
        at += b->bytes;
    }
    if (t->heap_used + needed > HEAP) abort();
    struct block *b = (struct block *)(t->heap + t->heap_used);
    t->heap_used += needed;
    memset(b, 0, needed);
    b->bytes = needed;
    b->used = true;
    return b->data;
}

void __wrap_free(void *p) {
    if (!p) return;
    if ((char *)p < (char *)&world || (char *)p >= (char *)(&world + 1)) {
        __real_free(p);
        return;
    }
    struct block *b = (struct block *)((char *)p - offsetof(struct block, data));
    b->used = false;
    memset(b->data, 0, b->bytes - sizeof *b);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return explore_thread() < 0 ? __real_calloc(count, bytes) : __wrap_malloc(count * bytes);
}

void *__wrap_realloc(void *p, size_t bytes) {
    if (explore_thread() < 0) return __real_realloc(p, bytes);
    void *moved = __wrap_malloc(bytes);
    if (!p) return moved;
    size_t room =
        ((struct block *)((char *)p - offsetof(struct block, data)))->bytes - sizeof(struct block);
    memcpy(moved, p, room < bytes ? room : bytes);
    __wrap_free(p);
    return moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    (void)alignment; /* blocks are aligned to 64 */
    return __wrap_malloc(bytes);
}

char *__wrap_strdup(const char *text) {
    return memcpy(__wrap_malloc(strlen(text) + 1), text, strlen(text) + 1);
}

/* ---- Files ---- */

static int new_file(void) {
    int thread = explore_thread();
    return 100 * (thread + 1) + world.threads[thread].files++;
}

int __wrap_open(const char *path, int flags, ...) {
    (void)path, (void)flags;
    return new_file();
}

int __wrap_fstat(int fd, struct stat *out) {
    (void)fd;
    *out = (struct stat){.st_uid = geteuid(), .st_mode = 0600, .st_size = 8192};
    return 0;
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    (void)at, (void)bytes, (void)protection, (void)flags, (void)fd, (void)offset;
    return explore_segment;
}
int __wrap_munmap(void *at, size_t bytes) { return (void)at, (void)bytes, 0; }

/* ---- Locks ---- */

static void unlock(int fd, int lock) {
    if (world.memory.locks[lock].value != fd) return;
    explore_step((struct step){.kind = UNLOCKS, .what = lock});
    explore_note("unlocks byte %d", lock);
    memory_join(&world.memory.locks[lock].knows, &world.memory.threads[explore_thread()].now);
    world.memory.locks[lock].value = 0;
}

int __wrap_close(int fd) {
    for (int i = 0; i < LOCKS; i++) unlock(fd, i);
    return 0;
}

int __wrap_fcntl(int fd, int command, struct flock *its) {
    int lock = (int)its->l_start, thread = explore_thread();
    if (lock >= LOCKS) return 0; /* that of the loop: only messages depend on it */
    if (its->l_type == F_UNLCK) {
        unlock(fd, lock);
        return 0;
    }
    bool takes = command == F_OFD_SETLK;
    explore_step((struct step){.kind = takes ? LOCKS_BYTE : LOOKS_AT_LOCK, .what = lock});
    int holder = world.memory.locks[lock].value;
    explore_note("%s byte %d, which %s", takes ? "locks" : "looks at the lock of", lock,
                 holder ? "is locked" : "is free");
    if (!holder) memory_acquire(&world.memory, thread, &world.memory.locks[lock].knows);
    if (takes && !holder) world.memory.locks[lock].value = fd;
    if (!takes) its->l_type = holder && holder != fd ? F_WRLCK : F_UNLCK;
    errno = EAGAIN;
    return takes && holder && holder != fd ? -1 : 0;
}

/* ---- Sleeps: the kernel compares and puts to sleep in one step ---- */

static int word_of(const void *p) {
    size_t at;
    return explore_word(p, &at);
}

static int sleep_at(const void *p, uint32_t expected, const struct timespec *time) {
    int word = word_of(p);
    uint32_t now = (uint32_t)explore_step((struct step){.kind = COMPARES, .what = word});
    if (now != expected) return EAGAIN;
    world.threads[explore_thread()].woken = false;
    int64_t until = world.clock + time->tv_sec * SECOND + time->tv_nsec;
    return explore_step((struct step){.kind = SLEEPS, .what = word, .until = until}) ? ETIMEDOUT
                                                                                     : 0;
}

long __wrap_syscall(long number, const void *p, int operation, uint32_t value,
                    const struct timespec *time) {
    if (number != SYS_futex) abort();
    if (operation == FUTEX_WAKE) explore_step((struct step){.kind = WAKES, .what = word_of(p)});
    else if (operation == FUTEX_WAIT) errno = sleep_at(p, value, time);
    else abort();
    return operation == FUTEX_WAIT && errno ? -1 : 0;
}

/* ---- Time, which passes only while all wait ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
    (void)clock;
    *out = (struct timespec){world.clock / SECOND, world.clock % SECOND};
    return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left) {
    (void)t, (void)left;
    /* a sleep may last longer than it should */
    explore_step((struct step){.kind = NAPS, .until = world.clock + 2 * SECOND});
    return 0;
}

int __wrap_sched_getcpu(void) { return 0; }

/* ---- No process forks ---- */

void shmb_fork_hold(void) {}
void shmb_fork_let_go(void) {}
void shmb_fork_watch(struct inherited *handle, void (*in_child)(struct inherited *)) {
    *handle = (struct inherited){.in_child = in_child};
}
void shmb_fork_forget(struct inherited *handle) { (void)handle; }
void shmb_fork_close(int *fd) { (void)fd; }
