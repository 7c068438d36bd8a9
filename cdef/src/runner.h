/* A runner: what every kind has in common, and what a kind adds. A new kind is one file and one line in open.c. */
#ifndef SHMB_RUNNER_H
#define SHMB_RUNNER_H

#include "builder.h"
#include "channel.h"

struct runner_kind {
    const char *scheme;
    /* Connects to what stands behind "scheme://"; sets r->kind_state. On failure nothing is left behind. */
    shmb_status (*open)(shmb_runner *r, const char *where, const shmb_options *options);
    /* Starts a message: gives r->builder its memory. */
    void (*begin)(shmb_runner *r);
    /* Sends the message, or gets ready to do so in proceed. */
    shmb_status (*start)(shmb_runner *r);
    /* Waits until `until` and at most a slice. SHMB_OK: r->advice is there; PENDING: not yet; else evaluate's error. */
    int (*proceed)(shmb_runner *r, int64_t until);
    /* Gives the question up: its reply will be dropped. */
    void (*abandon)(shmb_runner *r);
    void (*close)(shmb_runner *r);
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
    bool asked; /* ever: it is too late to bind */
    const volatile bool *forked; /* has a fork made this a child's copy? NULL when the kind does not mind */
    int64_t deadline_ns; /* 0: none */
    int64_t until;       /* of the evaluate in progress */
    shmb_dtype want;
    _Atomic int interrupted;
    bool has_advice;
    struct incoming advice;
};

extern const struct runner_kind shm_runner;

/* Fills in options from a URL's query; where points behind "scheme://", into a copy of the URL. */
shmb_status url_split(const char *url, char *copy, size_t room, const char **scheme, const char **where,
                      shmb_options *options, struct error *e);

#endif
