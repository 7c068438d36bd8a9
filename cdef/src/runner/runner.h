/* A runner: what every kind has in common, and what a kind adds. A new kind is one file and one
 * name in kinds.c, or a shmb_runner_kind that someone registers (plugin.c). */
#ifndef SHMB_RUNNER_H
#define SHMB_RUNNER_H

#include <math.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/order.h"
#include "message/builder.h"
#include "runner/nonblocking.h"
#include "runner/url.h"
#include "shmbridge/plugin.h"

struct runner_ops {
    const char *scheme;
    /* Connects to what follows "scheme://"; sets r->kind_state. On failure nothing is left
     * behind. */
    shmb_status (*open)(shmb_runner *r, struct url *url, const shmb_options *options);
    /* Starts a message: gives r->builder its memory. */
    void (*begin)(shmb_runner *r);
    /* Sends the message as question r->number, or gets ready to do so in proceed. */
    shmb_status (*start)(shmb_runner *r);
    /* Has it been sent, so that another question may start before its answer is there? That answer
     * goes to shmb_ticket_answer. NULL: this kind has one question at a time. */
    bool (*sent)(const shmb_runner *r);
    /* Waits until `until` or shmb_runner_until, and at most a slice. SHMB_OK: the advice is there,
     * r->advice_count fields of it, the first of r->advice_dtype; PENDING: not yet; else evaluate's
     * error. */
    int (*proceed)(shmb_runner *r, int64_t until);
    /* A field of the advice that is there. */
    void (*advice)(shmb_runner *r, uint32_t index, shmb_tensor *out);
    /* Gives the question up: its reply will be dropped. */
    void (*abandon)(shmb_runner *r);
    void (*close)(shmb_runner *r);
    /* Makes a start that computes in this process end soon; signal-safe, from any thread. May be
     * NULL. */
    void (*interrupt)(shmb_runner *r);
    /* Why no advice came, where it can be told; else NULL. May be NULL. */
    const char *(*why_late)(const shmb_runner *r);
    /* After a late answer: when the model is asked again; NULL: now. May set r->broken. */
    const char *(*asks_again)(shmb_runner *r);
    /* How many features the agent's model expects, -1 if that is not known; one of them, if there
     * is that index. May be NULL. */
    int64_t (*expected)(const shmb_runner *r, const char *agent, int64_t index, shmb_port *out);
};

/* Asking where nobody answers takes at most a sixteenth of a compiler's time. */
enum { SHARE = 16 };
#define WHEN_IT_ANSWERS "once that answer has come"
/* A live host has at least this long to accept a runner, because it may compute, or be about to
 * enter its loop. */
enum { MOMENT_NS = 1000 * 1000 * 1000 };
static inline double at_least_a_moment(double seconds) {
    return seconds < MOMENT_NS / 1e9 ? MOMENT_NS / 1e9 : seconds;
}

struct shmb_runner {
    const struct runner_ops *kind;
    void *kind_state;
    struct error error;  /* of the last failed call */
    struct error stuck;  /* of filling: until evaluate returns it */
    struct error broken; /* for good: every evaluate returns it */
    struct builder builder;
    bool filling, bound;
    bool asked;                  /* ever: it is too late to bind */
    _Atomic bool asking;         /* a question is under way; two threads at once may both look */
    const volatile bool *forked; /* has a fork made this a child's copy? */
    uint64_t number;             /* of the question under way or the last one; 0: given up */
    struct tickets *tickets;     /* NULL: none was sent (tickets.c) */
    /* Gives up the question of that number if it has a ticket. NULL: none was sent. */
    void (*drop_ticket)(shmb_runner *r, uint64_t number);
    void (*free_tickets)(struct tickets *t);
    struct default_advice *default_advice;        /* NULL: none (default.c) */
    void (*log)(void *context, const char *line); /* NULL: stderr */
    void *log_context;
    char where[160];   /* the URL without its options, for what is said of the runner */
    bool reports;      /* the next failure; runners of this library's own callers do not */
    shmb_stats stats;  /* but for waited: */
    int64_t waited_ns; /* by evaluates, as far as a clock saw */
    /* for an evaluate, ns; INT64_MAX: no limit. The caller's, or 0; the host's */
    int64_t deadline_ns, host_deadline_ns;
    int64_t began;     /* the evaluate in progress; 0: not yet, see shmb_runner_until */
    int64_t until;     /* of the evaluate in progress; before the first, of opening */
    int64_t asks_from; /* after a late answer: of a model in this process; 0: none was late */
    bool present;      /* a host is there that open could not reach, but may yet */
    shmb_dtype want;
    _Atomic int interrupted;
    /* reads the advice that is there: the kind's or the default; NULL: none */
    void (*advice)(shmb_runner *r, uint32_t index, shmb_tensor *out);
    uint32_t advice_count;
    /* of the first field: what is asked for each time costs no look at the tensor */
    shmb_dtype advice_dtype;
    bool untyped; /* the advice came as bytes alone: its dtype is what was wanted */
};

/* How many seconds r tries to connect to a host that lives, after this status. It waits for a free
 * channel as long as for an answer, and so it does where the host says that its answers take long:
 * a host accepts nobody while it computes. */
static inline double patience(const shmb_runner *r, double connect_timeout, shmb_status status) {
    double deadline = shmb_runner_deadline(r);
    bool slow = r->host_deadline_ns > (int64_t)SHMB_DEADLINE * SECOND_NS;
    bool longer = (slow || status == SHMB_BUSY) && deadline < HUGE_VAL;
    return at_least_a_moment(longer && deadline > connect_timeout ? deadline : connect_timeout);
}

/* Starts Python in this process, unless it runs. False: e says why there is none, or that it has
 * not begun so many seconds after its start (TIMEOUT): it may yet. */
bool shmb_embedded_begin(double seconds, struct error *e);
/* Then: has Python register what the URL names; *url becomes the URL to open. */
shmb_status shmb_embedded_resolve(struct url *url, struct error *e);
/* The library's own kind of that scheme; NULL when there is none. */
const struct runner_ops *shmb_kind_find(const char *scheme);
/* The kind that serves what was registered for a scheme; NULL when nothing was. It lives as long as
 * the process. */
const struct runner_ops *shmb_plugin_find(const char *scheme);
/* Registers a kind that is complete. Errors: IN_USE, NO_MEMORY. */
shmb_status shmb_plugin_add(const shmb_runner_kind *kind);
/* A runner without a kind; NULL when there is no memory. */
shmb_runner *shmb_runner_new(void);
/* Opens what the URL says, as it says, once; the options that every runner has are not the kind's
 * business. Sets r->kind, or r->broken. */
shmb_status shmb_runner_connect(shmb_runner *r, struct url *url, const shmb_options *options);
/* The same behind a runner that recovers as the options say, for the URL's text; waits so many
 * seconds. For want of a host (the status is returned, r->error says why) the runner is open all
 * the same, and looks for one when it is asked; other failures are r->broken. */
shmb_status shmb_recovery_open(shmb_runner *r, const char *text, const shmb_options *options,
                               double seconds);
/* For a kind's open: tries until it succeeds or fails for good, for `seconds` where nobody is
 * there, and a moment at least where r->present says that somebody is. A try that waits for an
 * answer does so until `until`. */
shmb_status shmb_runner_try(shmb_runner *r, double seconds,
                            shmb_status (*try)(shmb_runner *r, void *state, int64_t until),
                            void *state);
static inline void set_asking(shmb_runner *r, bool asking) {
    atomic_store_explicit(&r->asking, asking, memory_order_relaxed);
}
/* False, for good, where another call is under way. */
bool shmb_runner_alone(shmb_runner *r);
/* Starts the question r->number | place; its failure, in r->error, is not counted yet. */
shmb_status shmb_runner_ask(shmb_runner *r, shmb_dtype want, uint64_t place);
/* What has come of the question under way after a slice, until `until` at most: PENDING, SHMB_OK
 * (the kind has the advice) or its failure, not counted yet. */
int shmb_runner_look(shmb_runner *r, int64_t until);
/* For a kind that has several questions: an answer came, or status and why. number: its question's,
 * also of one that was received or given up meanwhile. The kind's advice is copied. */
void shmb_ticket_answer(shmb_runner *r, uint64_t number, shmb_status status, const char *why);
/* The end of a question whose advice `read` reads, if status is SHMB_OK: checks its dtype, counts
 * its failure. */
shmb_status shmb_runner_end(shmb_runner *r, int status,
                            void (*read)(shmb_runner *, uint32_t, shmb_tensor *));
/* What evaluate returns after a failure, which is counted, and reported if it is the first: the
 * failure, or SHMB_OK where r takes its default advice. */
shmb_status shmb_runner_failed(shmb_runner *r, shmb_status status);
/* The status; reported if it is the runner's first failure. */
shmb_status shmb_runner_report(shmb_runner *r, shmb_status status);
/* What asking NULL returns, which is reported once. */
shmb_status shmb_runner_none(void);
/* The failure of a runner whose r->forked is set. */
shmb_status shmb_runner_inherited(struct error *e);
/* The caller gave NULL for a result, or wants no dtype that there is. */
shmb_status shmb_runner_no_result(struct error *e);
shmb_status shmb_runner_no_dtype(struct error *e, shmb_dtype dtype);
/* Begins a message unless one is being filled: then r->builder has its memory. */
void shmb_runner_begin_message(shmb_runner *r);
static inline void shmb_runner_begin(shmb_runner *r) {
    if (!r->filling || load_relaxed(&r->asking) || *r->forked) shmb_runner_begin_message(r);
}
/* When the evaluate in progress is late, INT64_MAX for never. The first call starts its deadline,
 * so that an answer which is there at once costs no clock. */
int64_t shmb_runner_until(shmb_runner *r);
/* Sets r->until again: the deadline has changed. */
void shmb_runner_limit(shmb_runner *r);
/* Has the evaluate's deadline passed? Exactly, or some milliseconds late in a fifth of the time. */
bool shmb_runner_is_late(shmb_runner *r, bool exactly);
/* SHMB_TIMEOUT: the deadline has passed. why: NULL, or what else is known. */
shmb_status shmb_runner_fail_late(shmb_runner *r, const char *why);
/* SHMB_INVALID when the features' names make no message: for kinds without layouts, which find that
 * themselves. */
shmb_status shmb_runner_check_names(shmb_runner *r);
/* shmb_runner_continue that waits until `until` (shmb_clock_ns) at most; 0: looks once. */
int shmb_runner_wait(shmb_runner *r, int64_t until);

#endif
