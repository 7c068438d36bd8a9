#include "base/memory.h"

#include <sys/mman.h>

static const size_t most = (size_t)4 << 30, least = (size_t)1 << 20, kept = (size_t)1 << 20;

bool shmb_memory_reserve(struct memory *m) {
    if (m->base) return true;
    /* ulimit -v and strict overcommit allow less */
    for (size_t room = most; room >= least; room /= 4) {
        void *base = mmap(NULL, room, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) continue;
        *m = (struct memory){.base = base, .room = room};
        return true;
    }
    return false;
}

void shmb_memory_trim(struct memory *m, size_t used) {
    if (used > m->taken) m->taken = used;
    if (m->taken <= kept || used > m->taken / 2) return; /* messages of one size keep their pages */
    madvise(m->base + kept, m->taken - kept, MADV_DONTNEED);
    m->taken = 0;
}

void shmb_memory_release(struct memory *m) {
    if (m->base) munmap(m->base, m->room);
    *m = (struct memory){0};
}
