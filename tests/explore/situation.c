/* A situation is all bytes that its future depends on. */
#include <stdlib.h>

#include "explore.h"

uint64_t situations;
static uint64_t *seen, room; /* hashes, in a table with open addressing */

void *__real_malloc(size_t bytes);
void __real_free(void *p);

char *stack_of(const struct thread *t) {
#ifdef __x86_64__
    return (char *)t->context.uc_mcontext.gregs[REG_RSP];
#else
    return (char *)t->context.uc_mcontext.sp;
#endif
}

struct span {
    void *at;
    size_t bytes;
};
enum { SPANS = 2 + 3 * THREADS };

static int spans_of(struct span *spans) {
    int n = 0;
    size_t unused = (size_t)(MESSAGES - world.memory.count) * sizeof(struct message);
    spans[n++] = (struct span){&world.memory, sizeof world.memory - unused};
    spans[n++] = (struct span){(char *)&world + sizeof world.memory,
                               offsetof(struct world, threads) - sizeof world.memory};
    for (int i = 0; i < THREADS; i++) {
        struct thread *t = &world.threads[i];
        spans[n++] = (struct span){t, offsetof(struct thread, heap)};
        if (t->step.kind == ENDED) continue;
        spans[n++] = (struct span){t->heap, t->heap_used};
        spans[n++] = (struct span){stack_of(t), (size_t)(t->stack + STACK - stack_of(t))};
    }
    return n;
}

static uint64_t mix(uint64_t h, uint64_t word) {
    __uint128_t product = (__uint128_t)(h ^ word) * 0xd6e8feb86659fd93;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash(void) {
    struct span spans[SPANS];
    int n = spans_of(spans);
    uint64_t h[4] = {1, 2, 3, 4}; /* four at a time take a third of the time of one */
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < spans[i].bytes; at += sizeof h) {
            uint64_t words[4] = {0};
            size_t left = spans[i].bytes - at;
            memcpy(words, (char *)spans[i].at + at, left < sizeof words ? left : sizeof words);
            for (int k = 0; k < 4; k++) h[k] = mix(h[k], words[k]);
        }
    uint64_t all = mix(mix(mix(h[0], h[1]), h[2]), h[3]);
    return all ? all : 1;
}

char *situation_save(void) {
    struct span spans[SPANS];
    int n = spans_of(spans);
    size_t bytes = sizeof spans;
    for (int i = 0; i < n; i++) bytes += spans[i].bytes;
    char *saved = __real_malloc(bytes), *to = saved + sizeof spans;
    if (!saved) abort();
    memset(&spans[n], 0, (size_t)(SPANS - n) * sizeof *spans);
    memcpy(saved, spans, sizeof spans);
    for (int i = 0; i < n; to += spans[i++].bytes) memcpy(to, spans[i].at, spans[i].bytes);
    return saved;
}

void situation_restore(const char *saved) {
    const struct span *spans = (const struct span *)saved;
    const char *from = saved + sizeof *spans * SPANS;
    for (int i = 0; i < SPANS; from += spans[i++].bytes)
        if (spans[i].bytes) memcpy(spans[i].at, from, spans[i].bytes);
}

void situation_free(char *saved) { __real_free(saved); }

bool situation_is_new(void) {
    uint64_t h = hash();
    if (2 * situations >= room) {
        uint64_t *old = seen, old_room = room;
        room = room ? 2 * room : 1 << 16;
        if (!(seen = calloc(room, sizeof *seen))) abort();
        for (uint64_t i = 0; i < old_room; i++)
            if (old[i]) {
                uint64_t at = old[i] & (room - 1);
                while (seen[at]) at = (at + 1) & (room - 1);
                seen[at] = old[i];
            }
        __real_free(old);
    }
    uint64_t at = h & (room - 1);
    for (; seen[at]; at = (at + 1) & (room - 1))
        if (seen[at] == h) return false;
    seen[at] = h;
    situations++;
    return true;
}

void situation_forget_all(void) {
    situations = 0;
    if (seen) memset(seen, 0, room * sizeof *seen);
}
