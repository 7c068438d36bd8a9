/* Runner kinds of the tests, which answer in this process. */
#ifndef KINDS_H
#define KINDS_H

#include "bridge.h"
#include "shmbridge/plugin.h"

/* A kind's evaluate. */
#define ANSWERS(name)                                                                              \
    shmb_status name(void *state, const shmb_tensor *features, int64_t count, shmb_dtype want,     \
                     double deadline, shmb_sink *advice)
/* A kind's open. */
#define OPENS(name)                                                                                \
    shmb_status name(void *context, const char *where, const shmb_options *options, void **state,  \
                     shmb_sink *failure)

/* The state is what follows "scheme://". */
static inline OPENS(kind_open) {
    (void)context, (void)options, (void)failure;
    *state = strdup(where);
    return SHMB_OK;
}

/* Registers a kind that opens whatever is asked for. */
static inline void kind_register(const char *scheme,
                                 shmb_status (*evaluate)(void *, const shmb_tensor *, int64_t,
                                                         shmb_dtype, double, shmb_sink *)) {
    static shmb_runner_kind kinds[4];
    shmb_runner_kind *kind = kinds;
    while (kind->scheme) kind++;
    *kind = (shmb_runner_kind){.size = sizeof *kind,
                               .scheme = scheme,
                               .open = kind_open,
                               .evaluate = evaluate,
                               .close = free};
    CHECK(shmb_register_runner(kind) == SHMB_OK);
}

static inline shmb_status advise_i64(shmb_sink *advice, int64_t value) {
    *(int64_t *)shmb_sink_field(advice, "advice", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL) = value;
    return SHMB_OK;
}

#endif
