/* What the runners have in common whose model is in this process: the request lies in memory that
 * is reserved once and never moves, and one call answers it. */
#ifndef SHMB_LOCAL_H
#define SHMB_LOCAL_H

#include "base/memory.h"
#include "process/fork.h"
#include "runner/runner.h"

/* First in such a kind's state, r->kind_state. */
struct local {
    struct memory request;
    /* of the last request; of the one before, whose names may still be used */
    struct layout *layout, *retired;
    /* has the request of this start the names, dtypes, kinds and ranks of the one before? */
    bool same;
    bool still;                /* also the sizes, so that all features are where they were? */
    int64_t *dims;             /* of the features that shmb_local_features gave, */
    const int64_t *from;       /* copied from here; NULL: these must be looked at anew */
    const shmb_tensor *advice; /* r->advice_count of them */
    struct inherited inherited;
};

/* The last part of the kind's open: sets r->kind_state. Errors: NO_MEMORY, in r->broken. In a
 * forked child the runner is SHMB_FORKED from then on. */
shmb_status shmb_local_open(struct local *l, shmb_runner *r);
void shmb_local_close(struct local *l);
#define LOCAL_KIND                                                                                 \
    .begin = shmb_local_begin, .proceed = shmb_local_proceed, .advice = shmb_local_advice,         \
    .abandon = shmb_local_abandon, .asks_again = shmb_local_asks_again
void shmb_local_begin(shmb_runner *r);
int shmb_local_proceed(shmb_runner *r, int64_t until);
void shmb_local_advice(shmb_runner *r, uint32_t index, shmb_tensor *out);
void shmb_local_abandon(shmb_runner *r);
const char *shmb_local_asks_again(shmb_runner *r);
/* The first part of the kind's start: the features as tensors, their names checked, l->same set;
 * NULL with r->error. */
const shmb_tensor *shmb_local_features(shmb_runner *r);
/* The last part: this is the advice, which stays where it is until the next start. */
void shmb_local_answer(shmb_runner *r, const shmb_tensor *advice, uint32_t count);

#endif
