/* Runners of models that lie in files and compute in this process. What they have in common is here: the URL's agents, the check of
 * features against the model, advice in the wanted dtype. What differs is a backend, a file like onnx.c. */
#ifndef SHMB_MODEL_H
#define SHMB_MODEL_H

#include "local.h"

/* An input or output as the model declares it. */
struct port {
    char *name; /* owned */
    shmb_dtype dtype;
    int32_t rank;
    int64_t dims[SHMB_MAX_RANK]; /* -1: any size */
};

/* One model in use by one runner. */
struct model {
    const char *agent; /* "": of requests that name none */
    const char *file;
    struct port *inputs, *outputs;
    uint32_t input_count, output_count;
    void *session;                  /* the backend's */
    shmb_tensor *given, *results;   /* of run: inputs and outputs in the declared order */
    int64_t (*dims)[SHMB_MAX_RANK]; /* of given */
    uint32_t *place;                /* of each input among the request's features */
    bool placed, fitted,
        expanded; /* placed and given for the request as it is; some lack the leading dim */
    bool changed; /* have given's sizes or addresses, since the last run? */
};

struct backend {
    const char *known; /* its options, for messages: "threads, level, " */
    /* Loads m->file; takes its own options with url_take; sets m->session and, with model_ports, the ports. On failure e says why, and
     * nothing is left behind but ports. */
    shmb_status (*open)(struct model *m, struct url *url, struct error *e);
    /* Computes, until `until` if it can be stopped. given[] have the ports' names, dtypes and ranks, and sizes that fit them; addresses and dims
     * are those of the call before unless `changed`. Fills results[] but for the names: dtype, rank, size, dims, data (64-byte
     * aligned); all of that stays valid until the next run. Errors: MODEL, NO_MEMORY, INTERRUPTED (by interrupt alone; whether for good
     * or for a deadline, model.c knows). */
    shmb_status (*run)(struct model *m, bool changed, int64_t until, struct error *e);
    void (*interrupt)(
        struct model *m); /* makes run end soon; signal-safe, from any thread; may be NULL */
    void (*close)(struct model *m);
};

/* Room for that many ports, zeroed; false when there is no memory. */
bool model_ports(struct port **ports, uint32_t *count, size_t wanted);
/* Opens each model that the URL names; r->kind_state is set when that went well. */
shmb_status model_open(const struct backend *backend, shmb_runner *r, struct url *url);
shmb_status model_start(shmb_runner *r);
void model_interrupt(shmb_runner *r);
void model_close(shmb_runner *r);

/* The runner kind of a backend. */
#define MODEL_RUNNER(name, opens)                                                                  \
    {.scheme = (name),                                                                             \
     .open = (opens),                                                                              \
     .begin = local_begin,                                                                         \
     .start = model_start,                                                                         \
     .proceed = local_proceed,                                                                     \
     .advice = local_advice,                                                                       \
     .abandon = local_abandon,                                                                     \
     .close = model_close,                                                                         \
     .interrupt = model_interrupt}

#endif
