/* Where the words of a bridge with one channel of two slots lie, and how the core gets at them. The
 * segment itself is never mapped: who reads or writes it otherwise than by order.h crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "explore.h"
#include "segment/attach.h"
#include "segment/channel.h"

enum { SUPERBLOCK = 0xff, SLOTS = 2 };
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

uint8_t *explore_segment;
static uint8_t superblock[256]; /* written before anyone else knows of it */
static uint8_t word_of[SEGMENT_BYTES / 4];
static size_t start_of[WORDS];
static char names[WORDS][32];
static int words;

static void place(const volatile void *p, size_t bytes, const char *name, int number) {
    size_t at = (size_t)((const volatile uint8_t *)p - explore_segment);
    words++;
    snprintf(names[words], sizeof names[words], number < 0 ? "%s" : "%s %d", name, number);
    start_of[words] = at;
    memset(&word_of[at / 4], words, bytes / 4);
}
#define PLACE(p, name, number) place(&(p), sizeof(p), name, number)

static void place_lane(const struct segment *s, int direction, bool observed) {
    struct lane l = shmb_segment_lane(s, 0, direction);
    const char *stamp = direction ? "reply stamp" : "request stamp",
               *rest = direction ? "reply descriptor" : "request descriptor",
               *meta = direction ? "reply meta" : "request meta",
               *body = direction ? "reply body" : "request body";
    for (int i = 0; i < SLOTS; i++) {
        PLACE(l.ring[i].stamp, stamp, i);
        place(&l.ring[i].sequence, sizeof *l.ring - sizeof(uint64_t), rest, i);
        place(lane_meta(&l, (uint32_t)i), l.meta_bytes, meta, i);
        place(lane_body(&l, (uint32_t)i), l.body_bytes, body, i);
    }
    if (!observed) return;
    PLACE(l.last->version, direction ? "last reply version" : "last request version", -1);
    place(&l.last->header_bytes, 8, "last sizes", -1);
    place(l.last + 1, l.meta_bytes, "last meta", -1);
}

/* What is not placed is a hint. */
void explore_map(bool observed) {
    struct segment s = {
        .size = SEGMENT_BYTES,
        .block = {.channels = 1, .slots = SLOTS, .meta_bytes = {256, 256}, .body_bytes = {64, 64}}};
    if (!explore_segment)
        explore_segment =
            __real_mmap(NULL, SEGMENT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s.base = explore_segment;
    if (s.base == MAP_FAILED || !shmb_segment_plan(&s.block) || s.block.size > SEGMENT_BYTES)
        abort();
    memset(word_of, 0, sizeof word_of);
    memset(word_of, SUPERBLOCK, sizeof(struct superblock) / 4);
    words = 0;
    struct host_line *host = shmb_segment_host_line(&s);
    struct runner_line *runner = shmb_segment_runner_line(&s, 0);
    struct channel_line *channel = shmb_segment_channel_line(&s, 0);
    PLACE(host->asleep, "host asleep", -1);
    PLACE(host->closed, "closed", -1);
    PLACE(host->deadline, "deadline", -1);
    PLACE(runner->claim, "claim", -1);
    PLACE(runner->asleep, "runner asleep", -1);
    PLACE(channel->ready, "ready", -1);
    place(&channel->free_slots, sizeof channel->free_slots + sizeof channel->reason_bytes,
          "free slots and reason bytes", -1);
    place(channel->reason, sizeof channel->reason, "reason", -1);
    if (!observed) { /* who sends without a host sleeps nowhere */
        PLACE(shmb_segment_host_semaphore(&s)->count, "host semaphore", -1);
        PLACE(channel->semaphore.count, "runner semaphore", -1);
    }
    for (int direction = REQUEST; direction <= REPLY; direction++)
        place_lane(&s, direction, observed);
    if (words >= WORDS / 2) abort();
}

bool explore_has(const volatile void *p) {
    size_t at = (size_t)((const volatile uint8_t *)p - explore_segment);
    return at < SEGMENT_BYTES;
}

int explore_word(const volatile void *p, size_t *at) {
    size_t offset = (size_t)((const volatile uint8_t *)p - explore_segment);
    int word = word_of[offset / 4];
    *at = offset - (word == SUPERBLOCK ? 0 : start_of[word]);
    return word;
}

/* ---- What order.h means here ---- */

static void may_die(void) {
    if (world.deaths && scenario->mortal >> explore_thread() & 1)
        explore_step((struct step){.kind = STORES});
}

uint64_t explore_load(const volatile void *p, size_t bytes, struct site *site) {
    size_t at;
    uint64_t value = 0;
    int word = explore_word(p, &at), thread = explore_thread();
    if (!word) return 0;
    site->reached = true;
    int back = (int)explore_step((struct step){.kind = LOADS, .what = word});
    bool acquire = site->order == ACQUIRE && !explore_weakened(site);
    memory_load(&world.memory, thread, word, back, acquire, at, &value, bytes);
    explore_note("%s = 0x%llx%s", names[word], (unsigned long long)value,
                 back ? ", an old value" : "");
    return value;
}

static void check(const char *wrong, int word) {
    if (wrong) explore_fail("%s: %s", names[word], wrong);
}

void explore_store(volatile void *p, uint64_t value, size_t bytes, struct site *site) {
    size_t at;
    int word = explore_word(p, &at);
    if (!word) return;
    site->reached = true;
    may_die();
    explore_note("stores %s = 0x%llx", names[word], (unsigned long long)value);
    bool release = site->order == RELEASE && !explore_weakened(site);
    check(memory_store(&world.memory, explore_thread(), word, at, &value, bytes, release, false),
          word);
}

uint64_t explore_change(volatile void *p, enum change how, uint64_t from, uint64_t to, size_t bytes,
                        struct site *site) {
    struct memory *m = &world.memory;
    size_t at;
    uint64_t value = 0;
    int word = explore_word(p, &at), thread = explore_thread();
    if (!word || at) return 0;
    site->reached = true;
    may_die();
    explore_step((struct step){.kind = CHANGES, .what = word});
    memory_load(m, thread, word, 0, false, 0, &value, bytes);
    if (how == SWAP && value != from) return false;
    if (site->order == ACQUIRE && !explore_weakened(site))
        memory_load(m, thread, word, 0, true, 0, &value, bytes);
    if (how == ADD) to += value;
    explore_note("changes %s from 0x%llx to 0x%llx", names[word], (unsigned long long)value,
                 (unsigned long long)to);
    bool release = site->order == RELEASE && !explore_weakened(site);
    check(memory_change(m, thread, word, &to, bytes, release), word);
    return how == SWAP ? true : value;
}

void explore_fence(struct site *site) {
    site->reached = true;
    if (site->order == FULL) explore_step((struct step){.kind = FENCES, .site = site});
    else
        memory_fence(&world.memory, explore_thread(),
                     explore_weakened(site) ? RELAXED : site->order);
}

void put(void *to, const void *from, size_t bytes) {
    size_t at;
    int word = explore_has(to) ? explore_word(to, &at) : SUPERBLOCK;
    if (!explore_has(to)) memcpy(to, from, bytes);
    else if (word == SUPERBLOCK) memcpy(superblock + at, from, bytes);
    if (word == SUPERBLOCK || !word) return;
    may_die();
    explore_note("writes %s, %zu bytes", names[word], bytes);
    check(memory_store(&world.memory, explore_thread(), word, at, from, bytes, false,
                       !scenario->observed),
          word);
}

void take_copy(void *to, const void *from, size_t bytes) {
    size_t at;
    int word = explore_has(from) ? explore_word(from, &at) : SUPERBLOCK, thread = explore_thread();
    if (!explore_has(from)) memcpy(to, from, bytes);
    else if (word == SUPERBLOCK) memcpy(to, superblock + at, bytes);
    else if (!word) memset(to, 0, bytes);
    if (word == SUPERBLOCK || !word) return;
    int back = 0;
    if (scenario->observed && thread == 2) {
        if (memory_choices(&world.memory, thread, word) > 1)
            back = (int)explore_step((struct step){.kind = LOADS, .what = word});
    } else check(memory_read_plain(&world.memory, thread, word), word);
    memory_load(&world.memory, thread, word, back, false, at, to, bytes);
    explore_note("reads %s, %zu bytes%s", names[word], bytes, back ? ", old ones" : "");
}

void explore_read(void *to, const void *from, size_t bytes) { take_copy(to, from, bytes); }
