/* A runner: what every kind has in common, and what a kind adds. A new kind is one file and one line in open.c, or a
 * shmb_runner_kind that someone registers (plugin.c). */
#ifndef SHMB_RUNNER_H
#define SHMB_RUNNER_H

#include "builder.h"
#include "url.h"

struct runner_kind {
    const char *scheme;
    /* Connects to what stands behind "scheme://"; sets r->kind_state. On failure nothing is left behind. */
    shmb_status (*open)(shmb_runner *r, struct url *url, const shmb_options *options);
    /* Starts a message: gives r->builder its memory. */
    void (*begin)(shmb_runner *r);
    /* Sends the message, or gets ready to do so in proceed. */
    shmb_status (*start)(shmb_runner *r);
    /* Waits until `until` and at most a slice. SHMB_OK: the advice is there, r->advice_count fields of it, the first of
     * r->advice_dtype; PENDING: not yet; else evaluate's error. */
    int (*proceed)(shmb_runner *r, int64_t until);
    /* A field of the advice that is there. */
    void (*advice)(shmb_runner *r, uint32_t index, shmb_tensor *out);
    /* Gives the question up: its reply will be dropped. */
    void (*abandon)(shmb_runner *r);
    void (*close)(shmb_runner *r);
    /* Makes a start that computes in this process end soon; signal-safe, from any thread. May be NULL. */
    void (*interrupt)(shmb_runner *r);
};

enum { PENDING = -1 };

struct shmb_runner {
    const struct runner_kind *kind;
    void *kind_state;
    struct error error;  /* of the last failed call */
    struct error stuck;  /* of filling: until evaluate returns it */
    struct error broken; /* for good: every evaluate returns it */
    struct builder builder;
    bool filling, bound;
    bool asked;                            /* ever: it is too late to bind */
    bool asking;                           /* a question is under way */
    const volatile bool *forked;           /* has a fork made this a child's copy? */
    struct default_advice *default_advice; /* NULL: none (default.c) */
    int64_t defaulted;
    int64_t deadline_ns; /* 0: none */
    int64_t until;       /* of the evaluate in progress */
    shmb_dtype want;
    _Atomic int interrupted;
    void (*advice)(
        shmb_runner *r, uint32_t index,
        shmb_tensor
            *out); /* reads the advice that is there: the kind's or the default; NULL: none */
    uint32_t advice_count;
    shmb_dtype
        advice_dtype; /* of the first field: what is asked for each time costs no look at the tensor */
};

extern const struct runner_kind shm_runner, pipe_runner, onnx_runner, aot_runner, tflite_runner;
/* The kind for a scheme that nobody has: Python's, loaded into this process. */
extern const struct runner_kind embedded_runner;
/* The library's own kind of that scheme; NULL when there is none. */
const struct runner_kind *kind_find(const char *scheme);
/* The kind that serves what was registered for a scheme; NULL when nothing was. It lives as long as the process. */
const struct runner_kind *plugin_find(const char *scheme);
/* A runner without a kind; NULL when there is no memory. */
shmb_runner *runner_new(void);
/* Opens what the URL says, as it says, once; the options that every runner has are not the kind's business. Sets r->kind, or r->broken. */
shmb_status runner_connect(shmb_runner *r, struct url *url, const shmb_options *options);
/* Begins a message unless one is being filled: then r->builder has its memory. */
void runner_begin(shmb_runner *r);
/* SHMB_INVALID when the features' names make no message: for kinds without layouts, which find that themselves. */
shmb_status runner_check_names(shmb_runner *r);
/* shmb_runner_continue that waits until `until` (clock_ns) at most; 0: looks once. */
int runner_wait(shmb_runner *r, int64_t until);

#endif
