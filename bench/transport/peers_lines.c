/* peers_ask.c's minimum: two cache lines, as bare.c's `lines`, with a child that answers. */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "peers_ask.h"

static struct {
    _Alignas(128) _Atomic uint64_t ask;
    _Alignas(128) _Atomic uint64_t reply;
    _Alignas(128) float body[1 << 15];
} *s;

void open_peer(const char *address, size_t bytes) {
    (void)address, (void)bytes;
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED || fork()) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t n = 1;; n++) {
        while (atomic_load_explicit(&s->ask, memory_order_acquire) != n) continue;
        if (s->body[0] < 1) atomic_store_explicit(&s->reply, n, memory_order_release);
    }
}

void ask_peer(size_t bytes, int filler) {
    static uint64_t n;
    memset(s->body, filler, bytes);
    atomic_store_explicit(&s->ask, ++n, memory_order_release);
    while (atomic_load_explicit(&s->reply, memory_order_acquire) != n) continue;
}
