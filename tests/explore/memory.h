/* The memory of the explorer: a view machine, as in the promising semantics (Kang et al., POPL
 * 2017) without promises, which is RC11 (Lahav et al., PLDI 2017) where nobody reads before a store
 * that may follow it. Every store to a word is kept as a message. Each thread has a view: for each
 * word, the oldest message that it may still read. A release puts the thread's view into its
 * message, an acquire adds the message's view to the thread's. Sequentially consistent fences share
 * one view. Read-modify-writes, and locks, always continue the last one.
 *
 * Two checks make this exact, and find what would be undefined behaviour in C11. A store must have
 * seen the word's last store, so that it always comes last. Plain memory (a descriptor, a slot's
 * meta or body) must be read after its last store and stored after its last read, in the order of
 * happens-before: that finds reads that could be delayed behind a later store, too. Observers,
 * such as `shmbridge inspect`, read plain memory without order: they may get any message that
 * their view allows. */
#ifndef EXPLORE_MEMORY_H
#define EXPLORE_MEMORY_H

#include "base/order.h"

enum { THREADS = 3, LOCKS = 2, WORDS = 64, MESSAGE_BYTES = 128, MESSAGES = 200 };

/* Times of messages, by word; of plain memory also the number of reads, by READS_OF(word). */
typedef struct {
    uint8_t of[WORDS];
} view;

struct message {
    uint8_t word, time;
    view knows;
    uint8_t data[MESSAGE_BYTES];
};

struct thread_views {
    view now, acquired, released; /* acquired: by the next acquire fence; released: by the last
                                     release fence */
};

struct memory {
    view newest, fences, published; /* fences: what all full fences so far knew; published: what
                                       the host did before the segment had its name */
    bool alive[THREADS];
    struct thread_views threads[THREADS];
    struct {
        int value;
        view knows;
    } locks[LOCKS]; /* a lock's value: its open file, or 0 */
    int count;
    struct message messages[MESSAGES]; /* by word and time; word 0 is nobody's */
};

/* NULL, or what is wrong. */
const char *memory_store(struct memory *m, int thread, int word, size_t at, const void *data,
                         size_t bytes, bool release, bool plain);
/* Stores a word of which the thread has just loaded the newest value, as one step with that: who
 * acquires it acquires the store before it, too. NULL, or what is wrong. */
const char *memory_change(struct memory *m, int thread, int word, const void *data, size_t bytes,
                          bool release);
/* From how many messages a load may choose; 0: the newest. */
int memory_choices(const struct memory *m, int thread, int word);
void memory_load(struct memory *m, int thread, int word, int back, bool acquire, size_t at,
                 void *out, size_t bytes);
/* Notes a read of plain memory. NULL, or what is wrong. */
const char *memory_read_plain(struct memory *m, int thread, int word);
void memory_fence(struct memory *m, int thread, enum order order);
void memory_join(view *to, const view *from);
void memory_acquire(struct memory *m, int thread, const view *from);
/* Drops what no living thread can read any more, and counts times from there: equal situations are
 * then equal bytes. */
void memory_forget(struct memory *m);

#endif
