/* onnx://: models in this process, by ONNX Runtime. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx_session.h"

/* m->state. */
struct use {
    struct session session;
    const OrtFunction *api;
    OrtRunOptions *options;
    /* of all values, once two runs had the same: it saves a twentieth of a run; or NULL */
    OrtIoBinding *binding;
    const char **names; /* of inputs, then outputs */
    OrtValue **values;  /* likewise; an output that is NULL is ONNX Runtime's to allocate */
    int64_t (*dims)[SHMB_MAX_RANK]; /* of outputs */
    bool made;                      /* are there values of the inputs? */
    bool vary;                      /* do outputs have other sizes for inputs of the same sizes? */
    _Atomic unsigned stopping, stopped;
    unsigned seen; /* of stopping */
};

static const shmb_dtype dtypes[] = {
    [ORT_FLOAT] = SHMB_FLOAT32,    [ORT_UINT8] = SHMB_UINT8,   [ORT_INT8] = SHMB_INT8,
    [ORT_UINT16] = SHMB_UINT16,    [ORT_INT16] = SHMB_INT16,   [ORT_INT32] = SHMB_INT32,
    [ORT_INT64] = SHMB_INT64,      [ORT_BOOL] = SHMB_BOOL,     [ORT_FLOAT16] = SHMB_FLOAT16,
    [ORT_DOUBLE] = SHMB_FLOAT64,   [ORT_UINT32] = SHMB_UINT32, [ORT_UINT64] = SHMB_UINT64,
    [ORT_BFLOAT16] = SHMB_BFLOAT16};
enum { ELEMENTS = sizeof dtypes / sizeof *dtypes };

/* ---- What the model declares ---- */

static shmb_status read_tensor(const OrtFunction *api, const OrtTypeInfo *info, const char *file,
                               const char *side, struct port *p, struct error *e) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    int kind = 0, element = 0;
    size_t rank = 0;
    OrtStatus *status = ORT(api, GetOnnxTypeFromTypeInfo)(info, &kind);
    if (!status && kind == ORT_TENSOR) status = ORT(api, CastTypeInfoToTensorInfo)(info, &tensor);
    if (!status && tensor) status = ORT(api, GetTensorElementType)(tensor, &element);
    if (!status && tensor) status = ORT(api, GetDimensionsCount)(tensor, &rank);
    if (!status && tensor && rank <= SHMB_MAX_RANK)
        status = ORT(api, GetDimensions)(tensor, p->dims, rank);
    if (shmb_onnx_check(api, status, SHMB_INVALID, file, e)) return e->status;
    p->dtype = element > 0 && element < ELEMENTS ? dtypes[element] : SHMB_ANY;
    p->rank = (int32_t)rank;
    if (!tensor)
        return shmb_fail(
            e, SHMB_INVALID,
            "%.150s: the %s \"%.60s\" is no tensor: export the model with plain tensors "
            "there (scikit-learn's classifiers: zipmap=False)",
            file, side, p->name);
    if (p->dtype == SHMB_ANY || rank > SHMB_MAX_RANK)
        return shmb_fail(
            e, SHMB_INVALID,
            "%.150s: expected the %s \"%.60s\" to have bools, integers or floats of 16 "
            "to 64 bits and at most %d dims, found ONNX's element type %d and %zu dims: "
            "encode it outside of the model",
            file, side, p->name, SHMB_MAX_RANK, element, rank);
    return SHMB_OK;
}

static shmb_status read_port(struct model *m, const struct session *s, size_t port,
                             struct error *e) {
    const OrtFunction *api = s->api;
    struct port *p = &m->ports[port];
    bool input = port < m->input_count;
    size_t i = input ? port : port - m->input_count;
    OrtTypeInfo *info = NULL;
    char *name = NULL;
    OrtStatus *status = input ? ORT(api, SessionGetInputName)(s->session, i, s->names, &name)
                              : ORT(api, SessionGetOutputName)(s->session, i, s->names, &name);
    if (!status)
        status = input ? ORT(api, SessionGetInputTypeInfo)(s->session, i, &info)
                       : ORT(api, SessionGetOutputTypeInfo)(s->session, i, &info);
    if (name) {
        p->name = strdup(name);
        OrtStatus *freed = ORT(api, AllocatorFree)(s->names, name);
        if (freed) ORT(api, ReleaseStatus)(freed);
    }
    if (shmb_onnx_check(api, status, SHMB_INVALID, m->file, e)) return e->status;
    if (!p->name) shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    else read_tensor(api, info, m->file, input ? "input" : "output", p, e);
    ORT(api, ReleaseTypeInfo)(info);
    return e->status;
}

static shmb_status read_ports(struct model *m, const struct session *s, struct error *e) {
    const OrtFunction *api = s->api;
    size_t inputs, outputs;
    OrtStatus *status = ORT(api, SessionGetInputCount)(s->session, &inputs);
    if (!status) status = ORT(api, SessionGetOutputCount)(s->session, &outputs);
    if (shmb_onnx_check(api, status, SHMB_INVALID, m->file, e)) return e->status;
    if (shmb_model_ports(m, inputs, outputs, e)) return e->status;
    for (size_t i = 0; i < inputs + outputs && !e->status; i++) read_port(m, s, i, e);
    return e->status;
}

/* ---- Open and close ---- */

static void drop_values(struct use *u, size_t from, size_t to) {
    if (u->binding) ORT(u->api, ReleaseIoBinding)(u->binding);
    u->binding = NULL;
    for (size_t i = from; i < to; i++) {
        if (u->values[i]) ORT(u->api, ReleaseValue)(u->values[i]);
        u->values[i] = NULL;
    }
}

static void onnx_close(struct model *m) {
    struct use *u = m->state;
    if (u->values) drop_values(u, 0, m->input_count + m->output_count);
    if (u->options) ORT(u->api, ReleaseRunOptions)(u->options);
    shmb_onnx_session_close(&u->session);
    free(u->names);
    free(u->values);
    free(u->dims);
    free(u);
}

static shmb_status onnx_prepare(struct model *m, struct use *u, struct error *e) {
    size_t count = m->input_count + m->output_count;
    u->names = calloc(count + 1, sizeof *u->names);
    u->values = calloc(count + 1, sizeof(OrtValue *));
    u->dims = calloc(m->output_count + 1, sizeof *u->dims);
    if (!u->names || !u->values || !u->dims)
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    for (size_t i = 0; i < count; i++) u->names[i] = m->ports[i].name;
    return shmb_onnx_check(u->api, ORT(u->api, CreateRunOptions)(&u->options), SHMB_INVALID,
                           m->file, e);
}

static shmb_status onnx_open(struct model *m, struct url *url, struct error *e) {
    struct use *u = m->state = calloc(1, sizeof *u);
    if (!u) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    bool opened = !shmb_onnx_session_open(&u->session, m->file, url, e);
    u->api = u->session.api;
    if (!opened || read_ports(m, &u->session, e) || onnx_prepare(m, u, e)) onnx_close(m);
    return e->status;
}

/* ---- Run ---- */

/* Values over the features where they lie; outputs of other sizes are no longer foreseen. */
static shmb_status make_values(struct model *m, struct use *u, struct error *e) {
    drop_values(u, 0, m->input_count + m->output_count);
    for (uint32_t i = 0; i < m->input_count; i++) {
        const shmb_tensor *t = &m->given[i];
        int element = 0;
        while (dtypes[element] != t->dtype) element++;
        OrtStatus *status = ORT(u->api, CreateTensorWithDataAsOrtValue)(
            u->session.memory, (void *)t->data, (size_t)t->size * shmb_dtype_size(t->dtype),
            t->dims, (size_t)t->rank, element, &u->values[i]);
        if (shmb_onnx_check(u->api, status, SHMB_MODEL, m->file, e)) return e->status;
    }
    u->made = true;
    return SHMB_OK;
}

/* Where an output is that ONNX Runtime allocated. (One that is an input itself lies where the
 * feature does, until that is written again.) */
static shmb_status read_result(struct model *m, struct use *u, uint32_t i, struct error *e) {
    const OrtFunction *api = u->api;
    OrtValue *value = u->values[m->input_count + i];
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rank = 0;
    int64_t size = 1;
    void *data = NULL;
    OrtStatus *status = ORT(api, GetTensorTypeAndShape)(value, &info);
    if (!status) status = ORT(api, GetDimensionsCount)(info, &rank);
    if (!status && rank <= SHMB_MAX_RANK) status = ORT(api, GetDimensions)(info, u->dims[i], rank);
    if (!status) status = ORT(api, GetTensorMutableData)(value, &data);
    if (info) ORT(api, ReleaseTensorTypeAndShapeInfo)(info);
    if (shmb_onnx_check(api, status, SHMB_MODEL, m->file, e)) return e->status;
    if (rank > SHMB_MAX_RANK)
        return shmb_fail(e, SHMB_MODEL,
                         "%.150s: the output \"%.60s\" has %zu dims: expected at most 8", m->file,
                         m->outputs[i].name, rank);
    for (size_t k = 0; k < rank; k++) size *= u->dims[i][k];
    m->results[i] = (shmb_tensor){.dtype = m->outputs[i].dtype,
                                  .rank = (int32_t)rank,
                                  .size = size,
                                  .dims = u->dims[i],
                                  .data = data};
    return SHMB_OK;
}

static OrtStatus *onnx_bind(struct model *m, struct use *u) {
    OrtStatus *status = ORT(u->api, CreateIoBinding)(u->session.session, &u->binding);
    for (uint32_t i = 0; !status && i < m->input_count; i++)
        status = ORT(u->api, BindInput)(u->binding, u->names[i], u->values[i]);
    for (uint32_t i = m->input_count; !status && i < m->input_count + m->output_count; i++)
        status = ORT(u->api, BindOutput)(u->binding, u->names[i], u->values[i]);
    return status;
}

static OrtStatus *onnx_compute(struct model *m, struct use *u, bool reused) {
    OrtStatus *status = reused && u->session.bindable && !u->binding ? onnx_bind(m, u) : NULL;
    if (status || u->binding)
        return status ? status
                      : ORT(u->api, RunWithBinding)(u->session.session, u->options, u->binding);
    return ORT(u->api, Run)(u->session.session, u->options, u->names,
                            (const OrtValue *const *)u->values, m->input_count,
                            u->names + m->input_count, m->output_count, u->values + m->input_count);
}

/* Was the run stopped? Then those who stop it are waited for, so that nothing of it is left for the
 * next. */
static bool was_stopped(struct use *u) {
    if (u->stopping == u->seen) return false;
    while (u->stopped != (u->seen = u->stopping)) sched_yield();
    OrtStatus *status = ORT(u->api, RunOptionsUnsetTerminate)(u->options);
    if (status) ORT(u->api, ReleaseStatus)(status);
    return true;
}

/* Outputs go where those of the run before lay, which ONNX Runtime allocated: that is right as long
 * as they have the same sizes. It fails when they have not; then it allocates them each time. */
static shmb_status onnx_run(struct model *m, bool changed, struct error *e) {
    struct use *u = m->state;
    uint32_t first = m->input_count, last = first + m->output_count;
    if (changed) u->made = false;
    if (!u->made && make_values(m, u, e)) return e->status;
    if (u->vary) drop_values(u, first, last);
    bool reused = m->output_count && u->values[last - 1];
    OrtStatus *status = onnx_compute(m, u, reused);
    bool stopped = was_stopped(u);
    if (status && reused && !stopped) {
        ORT(u->api, ReleaseStatus)(status);
        drop_values(u, first, last);
        status = onnx_compute(m, u, false);
        stopped = was_stopped(u);
        u->vary = !status;
        reused = false;
    }
    if (status) {
        shmb_onnx_check(u->api, status, SHMB_MODEL, m->file, e);
        drop_values(u, first, last);
        return stopped ? shmb_fail(e, SHMB_INTERRUPTED, "interrupted while the model computed")
                       : e->status;
    }
    for (uint32_t i = 0; !reused && i < m->output_count; i++)
        if (read_result(m, u, i, e)) {
            drop_values(u, first, last);
            return e->status;
        }
    return SHMB_OK;
}

static void onnx_interrupt(struct model *m) {
    struct use *u = m->state;
    u->stopping++;
    OrtStatus *status = ORT(u->api, RunOptionsSetTerminate)(u->options);
    if (status) ORT(u->api, ReleaseStatus)(status);
    u->stopped++;
}

const struct backend shmb_onnx_backend = {.known = "threads, providers, library, agent.NAME, ",
                                          .open = onnx_open,
                                          .run = onnx_run,
                                          .interrupt = onnx_interrupt,
                                          .close = onnx_close};
