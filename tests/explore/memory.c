#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

#define READS_OF(word) ((word) + WORDS / 2)

void memory_join(view *to, const view *from) {
    for (int i = 0; i < WORDS; i++)
        if (to->of[i] < from->of[i]) to->of[i] = from->of[i];
}

static void subtract(view *from, const view *low) {
    for (int i = 0; i < WORDS; i++)
        from->of[i] = (uint8_t)(from->of[i] > low->of[i] ? from->of[i] - low->of[i] : 0);
}

/* Where the message of that word and time is, or belongs. */
static int find(const struct memory *m, int word, int time) {
    int low = 0, high = m->count;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct message *at = &m->messages[middle];
        if (at->word < word || (at->word == word && at->time < time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* NULL: all zeros, as at the beginning. */
static const struct message *get(const struct memory *m, int word, int time) {
    int i = find(m, word, time);
    const struct message *at = &m->messages[i];
    return i < m->count && at->word == word && at->time == time ? at : NULL;
}

static uint8_t advance(uint8_t *time) {
    if (++*time) return *time;
    fputs("explore: a word has too many messages\n", stderr);
    abort();
}

const char *memory_store(struct memory *m, int thread, int word, size_t at, const void *data,
                         size_t bytes, bool release, bool plain) {
    struct thread_views *own = &m->threads[thread];
    if (own->now.of[word] != m->newest.of[word])
        return "a store that does not follow the other side's last store there";
    if (own->now.of[READS_OF(word)] != m->newest.of[READS_OF(word)])
        return "a store while the other side may still read there";
    struct message made = {.word = (uint8_t)word};
    const struct message *before = get(m, word, m->newest.of[word]);
    if (before) memcpy(made.data, before->data, sizeof made.data);
    if (at + bytes > MESSAGE_BYTES || m->count == MESSAGES) {
        fputs("explore: no room for a message\n", stderr);
        abort();
    }
    memcpy(made.data + at, data, bytes);
    made.time = own->now.of[word] = advance(&m->newest.of[word]);
    if (own->acquired.of[word] < made.time) own->acquired.of[word] = made.time;
    made.knows = release ? own->now : own->released;
    made.knows.of[word] = made.time;
    if (plain) memset(&made.knows, 0, sizeof made.knows); /* who may read it knows all that */
    int i = find(m, word, made.time);
    memmove(&m->messages[i + 1], &m->messages[i], (size_t)(m->count++ - i) * sizeof made);
    m->messages[i] = made;
    return NULL;
}

const char *memory_change(struct memory *m, int thread, int word, const void *data, size_t bytes,
                          bool release) {
    const struct message *before = get(m, word, m->newest.of[word]);
    view knows = {0};
    if (before) knows = before->knows;
    const char *wrong = memory_store(m, thread, word, 0, data, bytes, release, false);
    if (!wrong) memory_join(&m->messages[find(m, word, m->newest.of[word])].knows, &knows);
    return wrong;
}

int memory_choices(const struct memory *m, int thread, int word) {
    return m->newest.of[word] - m->threads[thread].now.of[word] + 1;
}

void memory_acquire(struct memory *m, int thread, const view *from) {
    memory_join(&m->threads[thread].now, from);
    memory_join(&m->threads[thread].acquired, from);
}

void memory_load(struct memory *m, int thread, int word, int back, bool acquire, size_t at,
                 void *out, size_t bytes) {
    struct thread_views *own = &m->threads[thread];
    int time = m->newest.of[word] - back;
    const struct message *found = get(m, word, time);
    memset(out, 0, bytes);
    own->now.of[word] = (uint8_t)time;
    if (own->acquired.of[word] < time) own->acquired.of[word] = (uint8_t)time;
    if (!found) return;
    memcpy(out, found->data + at, bytes);
    memory_join(acquire ? &own->now : &own->acquired, &found->knows);
    memory_join(&own->acquired, &own->now);
}

const char *memory_read_plain(struct memory *m, int thread, int word) {
    struct thread_views *own = &m->threads[thread];
    int reads = READS_OF(word);
    if (own->now.of[word] != m->newest.of[word])
        return "a read of plain memory that may miss the other side's last store there";
    if (own->now.of[reads] != m->newest.of[reads])
        return "a read of plain memory that another thread may read, too";
    own->now.of[reads] = own->acquired.of[reads] = advance(&m->newest.of[reads]);
    return NULL;
}

void memory_fence(struct memory *m, int thread, enum order order) {
    struct thread_views *own = &m->threads[thread];
    if (order != RELEASE && order != RELAXED) own->now = own->acquired;
    if (order == FULL) {
        memory_join(&m->fences, &own->now);
        own->now = own->acquired = m->fences;
    }
    if (order != ACQUIRE && order != RELAXED) own->released = own->now;
}

void memory_forget(struct memory *m) {
    view low;
    bool any = false, none = true;
    memset(&low, 0xff, sizeof low);
    for (int t = 0; t < THREADS; t++)
        if (m->alive[t]) {
            any = true;
            for (int i = 0; i < WORDS; i++)
                if (low.of[i] > m->threads[t].now.of[i]) low.of[i] = m->threads[t].now.of[i];
        }
    for (int i = 0; i < WORDS; i++) none &= !low.of[i];
    if (!any || none) return;
    subtract(&m->newest, &low);
    subtract(&m->fences, &low);
    subtract(&m->published, &low);
    for (int t = 0; t < THREADS; t++) {
        subtract(&m->threads[t].now, &low);
        subtract(&m->threads[t].acquired, &low);
        subtract(&m->threads[t].released, &low);
    }
    for (int i = 0; i < LOCKS; i++) subtract(&m->locks[i].knows, &low);
    int kept = 0;
    for (int i = 0; i < m->count; i++) {
        struct message *from = &m->messages[i], *to = &m->messages[kept];
        if (from->time < low.of[from->word]) continue;
        if (to != from) *to = *from;
        to->time = (uint8_t)(to->time - low.of[to->word]);
        subtract(&to->knows, &low);
        kept++;
    }
    memset(&m->messages[kept], 0, (size_t)(m->count - kept) * sizeof *m->messages);
    m->count = kept;
}
