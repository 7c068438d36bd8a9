/* The explorer: the threads of a scenario are coroutines that run the core's real code. They stop
 * before each step whose result depends on the others; the search tries every thread and every
 * result there, and does not go on from a situation that it has met before. */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <ucontext.h>

#include "memory.h"

enum { HEAP = 96 << 10, STACK = 96 << 10, SEGMENT_BYTES = 16 << 10, SHARED = 8 };

enum step_kind {
    STARTS, /* once its gate is open */
    LOADS,  /* `choices` messages back at most */
    FENCES,
    CHANGES,  /* a read-modify-write */
    COMPARES, /* the kernel: is the word as expected? Then the thread sleeps, in one step */
    SLEEPS,   /* until another wakes it, or the clock says `until` */
    WAKES,    /* who sleeps there */
    NAPS,     /* until the clock says `until` */
    LOCKS_BYTE,
    LOOKS_AT_LOCK,
    UNLOCKS,
    CHOOSES,
    STORES, /* only so that the thread can die before it */
    ENDED
};

struct step {
    enum step_kind kind;
    int what; /* a word, lock, number of choices */
    int64_t until;
    struct site *site;
    bool acquire;
};

struct thread {
    ucontext_t context;
    struct step step;
    int64_t result;
    bool woken;
    int files;
    size_t heap_used;
    _Alignas(64) char heap[HEAP];
    _Alignas(64) char stack[STACK];
};

/* All that a situation consists of; each thread's heap and stack count as far as they are used. */
struct world {
    struct memory memory;
    int64_t clock;
    int deaths, timeouts, preemptions; /* that may still happen */
    int last;                          /* the thread that ran last */
    bool open;                         /* the segment has its name */
    bool gone;                         /* the host has died or closes: then time may pass */
    int shared[SHARED];                /* the scenario's */
    struct thread threads[THREADS];
};
extern struct world world;

struct scenario {
    const char *name, *what;
    void (*threads[THREADS])(void); /* the host, a runner; another starts when that one has ended */
    int messages;
    unsigned mortal; /* bit t: thread t may die at any step */
    int deaths;
    int timeouts;  /* sleeps that may end too early */
    int more;      /* preemptions than scenarios with more situations have */
    bool observed; /* the third thread is an observer, from the start */
};
extern const struct scenario scenarios[];
extern const struct scenario *scenario;

int explore_thread(void);
int64_t explore_step(struct step step); /* stops here; returns what the search chose */
int explore_choose(int choices);
_Noreturn void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define expect(condition)                                                                          \
    ((condition) ? (void)0 : explore_fail("line %d: expected %s", __LINE__, #condition))
void explore_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reads what lies in a slot, as a user does. */
void explore_read(void *to, const void *from, size_t bytes);
bool explore_weakened(const struct site *site);

/* situation.c */
extern uint64_t situations;             /* that were met */
char *stack_of(const struct thread *t); /* where it ends */
bool situation_is_new(void);            /* and notes that it was met */
void situation_forget_all(void);
char *situation_save(void);
void situation_restore(const char *saved);
void situation_free(char *saved);

/* segment.c: where words are. 0: hints, which are not stored and read as 0. */
extern uint8_t *explore_segment;
void explore_map(bool observed);
int explore_word(const volatile void *p, size_t *at);

#endif
