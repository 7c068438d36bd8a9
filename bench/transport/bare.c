/* The machine without a library: two processes alternate in shared memory.
 *     bare near|far line|lines|semaphore FD      FD: shared memory, larger than the largest message by 64 KiB
 *     bare near|far pipe READ_FD WRITE_FD
 * line: one cache line, bounced. lines: one for each direction, and a clock read on each side
 * before it answers: the minimum for two processes that do anything. The near side writes every
 * byte of its message. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "block.h"

struct shared {
    _Alignas(4096) _Atomic uint64_t stamp; /* the one line of the ping-pong */
    _Alignas(4096) _Atomic uint64_t reply; /* the other one, of lines */
    _Alignas(4096) sem_t ask;
    _Alignas(4096) sem_t answer;
    _Alignas(4096) uint8_t body[];
};

static struct shared *s;
static int in, out;
static uint8_t *message; /* of the pipe: its first four bytes are its length */
static size_t message_bytes;

/* Four bytes travel in the stamp itself: that is the bare cache line. */
static void write_body(uint8_t *to, size_t bytes) {
    static uint8_t value;
    memset(to, ++value, bytes);
}

static void line_near(size_t bytes) {
    uint64_t n = atomic_load_explicit(&s->stamp, memory_order_relaxed);
    if (bytes > 4) write_body(s->body, bytes);
    atomic_store_explicit(&s->stamp, n + 1, memory_order_release);
    while (atomic_load_explicit(&s->stamp, memory_order_acquire) != n + 2) continue;
}

static void line_far(void) {
    for (uint64_t n = 1;; n += 2) {
        while (atomic_load_explicit(&s->stamp, memory_order_acquire) != n) continue;
        atomic_store_explicit(&s->stamp, n + 1, memory_order_release);
    }
}

static volatile int64_t looked;

static void lines_near(size_t bytes) {
    uint64_t n = atomic_load_explicit(&s->reply, memory_order_relaxed);
    if (bytes > 4) write_body(s->body, bytes);
    looked = now_ns();
    atomic_store(&s->stamp, n + 1);
    while (atomic_load_explicit(&s->reply, memory_order_acquire) != n + 1) continue;
}

static void lines_far(void) {
    for (uint64_t n = 1;; n++) {
        while (atomic_load_explicit(&s->stamp, memory_order_acquire) != n) continue;
        looked = now_ns();
        atomic_store(&s->reply, n);
    }
}

static void semaphore_near(size_t bytes) {
    write_body(s->body, bytes);
    sem_post(&s->ask);
    while (sem_wait(&s->answer)) continue;
}

static void semaphore_far(void) {
    for (;;) {
        while (sem_wait(&s->ask)) continue; /* also interrupted by the driver's stop */
        sem_post(&s->answer);
    }
}

static bool transfer(bool writing, int fd, uint8_t *bytes, size_t count) {
    while (count) {
        ssize_t n = writing ? write(fd, bytes, count) : read(fd, bytes, count);
        if (n <= 0) return false;
        bytes += n;
        count -= (size_t)n;
    }
    return true;
}

static void reserve(size_t bytes) {
    if (bytes > message_bytes) message = realloc(message, message_bytes = bytes);
}

static void pipe_near(size_t bytes) {
    uint32_t length = (uint32_t)bytes, answer;
    reserve(bytes);
    write_body(message, bytes);
    memcpy(message, &length, 4);
    if (!transfer(true, out, message, bytes) || !transfer(false, in, (uint8_t *)&answer, 4))
        exit(1);
}

static void pipe_far(void) {
    uint32_t length;
    while (transfer(false, in, (uint8_t *)&length, 4)) {
        reserve(length);
        if (!transfer(false, in, message, length - 4) ||
            !transfer(true, out, (uint8_t *)&length, 4))
            break;
    }
}

static void map(int fd, bool near) {
    struct stat file;
    if (fstat(fd, &file)) exit(1);
    s = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (s == MAP_FAILED) exit(1);
    if (near) return;
    sem_init(&s->ask, 1, 0); /* the far side starts first */
    sem_init(&s->answer, 1, 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*near)(size_t bytes);
        void (*far)(void);
    } kinds[] = {{"line", line_near, line_far},
                 {"lines", lines_near, lines_far},
                 {"semaphore", semaphore_near, semaphore_far},
                 {"pipe", pipe_near, pipe_far}};
    if (argc < 4) return 2;
    bool near = strcmp(argv[1], "near") == 0;
    int kind = 0;
    while (strcmp(kinds[kind].name, argv[2]) != 0)
        if (++kind == 4) return 2;
    in = atoi(argv[3]);
    if (argc > 4) out = atoi(argv[4]);
    else map(in, near);
    if (near) {
        blocks(kinds[kind].near);
        return 0;
    }
    printf("ready\n");
    fflush(stdout);
    kinds[kind].far();
}
