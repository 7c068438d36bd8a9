/* Runners of models that lie in files and compute in this process. What they have in common is
 * here: the URL's agents, the check of features against the model, advice in the wanted dtype. What
 * differs is a backend, a file like onnx.c and its line at the end of model.c. */
#ifndef SHMB_MODEL_H
#define SHMB_MODEL_H

#include "runner/local.h"

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
    struct port *ports; /* inputs, then outputs */
    struct port *inputs, *outputs;
    uint32_t input_count, output_count;
    void *state;                    /* the backend's */
    shmb_tensor *given, *results;   /* of run: inputs and outputs in the declared order */
    int64_t (*dims)[SHMB_MAX_RANK]; /* of given */
    uint32_t *feature_of;           /* each input: its feature in the request */
    /* placed and given for the request as it is; some lack the leading dim */
    bool placed, fitted, expanded;
    bool changed; /* have given's sizes or addresses, since the last run? */
};

struct backend {
    const char *known; /* its options, for messages: "threads, library, " */
    /* Loads m->file; takes its own options with shmb_url_take; sets m->state and, with
     * shmb_model_ports, the ports. On failure e says why, and nothing is left behind but ports. */
    shmb_status (*open)(struct model *m, struct url *url, struct error *e);
    /* Computes. given[] have the ports' names, dtypes and ranks, and sizes that fit them;
     * addresses and dims are those of the call before unless `changed`. Fills results[] but for
     * the names: dtype, rank, size, dims, data (64-byte aligned); all of that stays valid until
     * the next run. Errors: MODEL, NO_MEMORY, INTERRUPTED (by interrupt alone; whether for good
     * or for a deadline, model.c knows). */
    shmb_status (*run)(struct model *m, bool changed, struct error *e);
    /* makes run end soon; signal-safe, from any thread; may be NULL */
    void (*interrupt)(struct model *m);
    void (*close)(struct model *m);
};

/* Room for m's ports, zeroed. */
shmb_status shmb_model_ports(struct model *m, size_t inputs, size_t outputs, struct error *e);

extern const struct backend shmb_onnx_backend, shmb_aot_backend, shmb_tflite_backend;

#endif
