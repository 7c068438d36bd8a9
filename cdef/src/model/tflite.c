/* tflite://: LiteRT's C functions for compiled models, which libLiteRt.so of the wheel
 * ai-edge-litert exports. Inputs and outputs are memory that LiteRT is given and computes in;
 * nothing is copied on the way. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/litert.h"
#include "model/model.h"
#include "process/library.h"

struct loaded {
    struct litert api;
    void *file;
    size_t file_bytes;
    handle environment, model, options, compiled;
    size_t signature;
    struct type_of *types;     /* of inputs, then outputs, with the sizes of the last request */
    handle *buffers;           /* the memory that is bound to each; NULL: none yet */
    struct layout_of *layouts; /* of the outputs */
    void **advice;             /* the outputs' memory */
    bool bound;                /* is all of it for the last request? */
    _Atomic bool stop;
};

/* By LiteRT's number of an element type. */
static const shmb_dtype dtypes[] = {
    [1] = SHMB_FLOAT32,   [2] = SHMB_INT32,   [3] = SHMB_UINT8,   [4] = SHMB_INT64,
    [6] = SHMB_BOOL,      [7] = SHMB_INT16,   [9] = SHMB_INT8,    [10] = SHMB_FLOAT16,
    [11] = SHMB_FLOAT64,  [13] = SHMB_UINT64, [16] = SHMB_UINT32, [17] = SHMB_UINT16,
    [19] = SHMB_BFLOAT16,
};

/* LiteRT says little in its status, and the rest to the model's collected messages. */
static shmb_status failed(const struct model *m, const char *what, int status, shmb_status as,
                          struct error *e) {
    const struct loaded *s = m->state;
    char *text = NULL;
    if (s->compiled && s->api.CompiledModelGetErrorMessages(s->compiled, &text)) text = NULL;
    if (s->compiled) s->api.CompiledModelClearErrors(s->compiled);
    for (char *line = text; line && (line = strchr(line, '\n'));) *line = ' ';
    shmb_fail(e, as, "the model %.100s: LiteRT %s: %.250s (its status %d)", m->file, what,
              text && *text ? text : "it gives no reason", status);
    free(text);
    return as;
}

/* ---- Open ---- */

static shmb_status tflite_load(struct loaded *s, const char *file, struct error *e) {
    static const char *const names[] = {"libLiteRt.so", NULL};
    const struct library wanted = {
        .what = "LiteRT",
        .file = file,
        .variable = "SHMBRIDGE_LITERT",
        .package = "ai_edge_litert/libLiteRt.so",
        .names = names,
        .hint = "install ai-edge-litert 2.2 or later with pip, or name libLiteRt.so in the URL's "
                "library= or in $SHMBRIDGE_LITERT"};
    /* for good: it has threads and destructors of its own */
    void *library = shmb_library_open(&wanted, e);
    if (!library) return e->status;
    void *address = shmb_library_symbol(library, "LiteRT, of ai-edge-litert 2.2 or later",
                                        "kLiteRtRuntimeBuiltin", e);
    /* those before 2.2 lack it, and some of them take other arguments */
    if (!address) return e->status;
#define FIND(result, name, arguments)                                                              \
    if (!(address = shmb_library_symbol(library, "LiteRT, of ai-edge-litert 2.2 or later",         \
                                        "LiteRt" #name, e)))                                       \
        return e->status;                                                                          \
    memcpy(&s->api.name, &address, sizeof address);
    FUNCTIONS(FIND)
    return SHMB_OK;
}

/* The file stays mapped, so that all who run it share its weights. */
static shmb_status map_file(struct loaded *s, const char *file, struct error *e) {
    struct stat found;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    s->file = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &found) == 0 && (s->file_bytes = (size_t)found.st_size))
        s->file = mmap(NULL, s->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0) close(fd);
    if (s->file != MAP_FAILED) return SHMB_OK;
    s->file = NULL;
    return shmb_fail(e, SHMB_INVALID, "the model %.200s cannot be read: %s", file,
                     fd >= 0 && !s->file_bytes ? "the file is empty" : strerror(errno));
}

/* Options of a part of LiteRT are a text in TOML. */
static bool tflite_set_options(struct loaded *s, const char *part, const char *text) {
    handle made = NULL;
    char *copy = strdup(text);
    if (!copy) return false;
    if (s->api.CreateOpaqueOptions(part, copy, free, &made)) {
        free(copy);
        return false;
    }
    return s->api.AddOpaqueOptions(s->options, made) == 0;
}

/* The signature of that key; the first where key is NULL. */
static shmb_status find_signature(struct model *m, const char *key, handle *out, struct error *e) {
    struct loaded *s = m->state;
    char known[200] = "";
    const char *name = "";
    size_t count = 0;
    s->api.GetNumModelSignatures(s->model, &count);
    for (size_t i = 0; i < count; i++) {
        if (s->api.GetModelSignature(s->model, i, out) || s->api.GetSignatureKey(*out, &name))
            continue;
        s->signature = i;
        if (!key || strcmp(key, name) == 0) return SHMB_OK;
        shmb_list_name(known, sizeof known, name);
    }
    return shmb_fail(e, SHMB_INVALID,
                     "the model %.100s has no signature \"%.60s\": expected one of %s", m->file,
                     key ? key : "", known);
}

/* Declares a port; the sizes that its tensor type has are those that the file was written with. */
static shmb_status declare(struct model *m, size_t port, const char *name, handle tensor,
                           struct error *e) {
    const struct loaded *s = m->state;
    struct port *p = &m->ports[port];
    struct type_of *type = &s->types[port];
    if (!(p->name = strdup(name))) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    int status = s->api.GetRankedTensorType(tensor, type);
    if (status)
        return shmb_fail(
            e, SHMB_INVALID,
            "the model %.100s: LiteRT does not report the shape of \"%.60s\" (its status %d)",
            m->file, name, status);
    int32_t element = type->element;
    p->dtype = element > 0 && (size_t)element < sizeof dtypes / sizeof *dtypes ? dtypes[element]
                                                                               : SHMB_ANY;
    if (!p->dtype)
        return shmb_fail(
            e, SHMB_INVALID,
            "the model %.100s: \"%.60s\" has an element type that shmbridge does not support "
            "(LiteRT's number %d)",
            m->file, name, element);
    p->rank = type->layout.rank;
    for (int i = 0; i < p->rank; i++) p->dims[i] = type->layout.dims[i];
    return SHMB_OK;
}

/* Finds an input's open sizes, those that LiteRT lets change. Are there any? */
static bool find_open(struct model *m, uint32_t index) {
    const struct loaded *s = m->state;
    struct port *p = &m->inputs[index];
    int32_t *dims = s->types[index].layout.dims;
    bool any = false;
    for (int i = 0; i < p->rank; i++) {
        dims[i]++;
        bool open = s->api.CompiledModelResizeInputTensor(s->compiled, s->signature, index, dims,
                                                          (size_t)p->rank) == 0;
        dims[i]--;
        if (!open) continue;
        any = true;
        p->dims[i] = -1;
        s->api.CompiledModelResizeInputTensor(s->compiled, s->signature, index, dims,
                                              (size_t)p->rank);
    }
    s->api.CompiledModelClearErrors(s->compiled);
    return any;
}

static shmb_status declare_all(struct model *m, handle signature, struct error *e) {
    struct loaded *s = m->state;
    const char *name = "";
    handle tensor = NULL;
    size_t inputs = 0, outputs = 0;
    s->api.GetNumSignatureInputs(signature, &inputs);
    s->api.GetNumSignatureOutputs(signature, &outputs);
    s->types = calloc(inputs + outputs + 1, sizeof *s->types);
    s->buffers = calloc(inputs + outputs + 1, sizeof *s->buffers);
    s->layouts = calloc(outputs + 1, sizeof *s->layouts);
    s->advice = calloc(outputs + 1, sizeof *s->advice);
    if (!s->types || !s->buffers || !s->layouts || !s->advice)
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    if (shmb_model_ports(m, inputs, outputs, e)) return e->status;
    int status = 0;
    for (size_t port = 0; port < inputs + outputs && !status; port++) {
        size_t i = port < inputs ? port : port - inputs;
        status = port < inputs ? s->api.GetSignatureInputName(signature, i, &name)
                               : s->api.GetSignatureOutputName(signature, i, &name);
        if (!status)
            status = port < inputs ? s->api.GetSignatureInputTensorByIndex(signature, i, &tensor)
                                   : s->api.GetSignatureOutputTensorByIndex(signature, i, &tensor);
        if (!status && declare(m, port, name, tensor, e)) return e->status;
    }
    return status ? failed(m, "does not report its inputs and outputs", status, SHMB_INVALID, e)
                  : SHMB_OK;
}

static void close_model(struct model *m) {
    struct loaded *s = m->state;
    if (!s) return;
    for (uint32_t i = 0; s->buffers && i < m->input_count + m->output_count; i++)
        if (s->buffers[i]) s->api.DestroyTensorBuffer(s->buffers[i]);
    for (uint32_t i = 0; s->advice && i < m->output_count; i++) free(s->advice[i]);
    if (s->compiled) s->api.DestroyCompiledModel(s->compiled);
    if (s->options) s->api.DestroyOptions(s->options);
    if (s->model) s->api.DestroyModel(s->model);
    if (s->environment) s->api.DestroyEnvironment(s->environment);
    if (s->file) munmap(s->file, s->file_bytes);
    free(s->types);
    free(s->buffers);
    free(s->layouts);
    free(s->advice);
    free(s);
    m->state = NULL;
}

/* LiteRT asks between two operators; all that XNNPACK computes are one. */
static bool must_stop(void *state) {
    const struct loaded *s = state;
    return s->stop;
}

static shmb_status compile(struct model *m, const char *kernels, int threads, struct error *e) {
    struct loaded *s = m->state;
    /* CPU alone: nothing is looked for in the library path; errors are asked for, not printed.
     * XNNPACK's one line at its start is logged by TensorFlow Lite's own logger, which no option
     * and no exported function reaches */
    const struct environment_option silent[] = {{ACCELERATORS, {INTEGER, CPU}},
                                                {SEVERITY, {INTEGER, SILENT}}};
    char cpu[64];
    snprintf(cpu, sizeof cpu, "kernel_mode = \"%s\"\nnum_threads = %d\n", kernels, threads);
    int status = s->api.CreateEnvironment(2, silent, &s->environment);
    if (status) return failed(m, "does not start", status, SHMB_INVALID, e);
    status = s->api.CreateModelFromBuffer(s->environment, s->file, s->file_bytes, &s->model);
    if (status == NO_MODEL)
        return shmb_fail(e, SHMB_INVALID,
                         "%.200s: expected a TFLite model, found something else, or part of one",
                         m->file);
    if (status) return failed(m, "does not read it", status, SHMB_INVALID, e);
    if (s->api.CreateOptions(&s->options) ||
        s->api.SetOptionsHardwareAccelerators(s->options, CPU) ||
        !tflite_set_options(s, "xnnpack", cpu) ||
        !tflite_set_options(s, "runtime_options_string", "error_reporter_mode = 2\n"))
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    status = s->api.CreateCompiledModel(s->environment, s->model, s->options, &s->compiled);
    if (status) return failed(m, "cannot run it", status, SHMB_INVALID, e);
    status = s->api.SetCompiledModelCancellationFunction(s->compiled, s, must_stop);
    return status ? failed(m, "does not support cancellation", status, SHMB_INVALID, e) : SHMB_OK;
}

static shmb_status open_model(struct model *m, struct url *url, struct error *e) {
    const char *threads = shmb_url_take(url, "threads"), *kernels = shmb_url_take(url, "kernels"),
               *key = shmb_url_take(url, "signature"), *file = shmb_url_take(url, "library");
    int32_t count = 1;
    if (threads && (!shmb_url_number(threads, 9999, &count) || !count))
        return shmb_fail(e, SHMB_INVALID, "threads=%.60s: expected a number from 1 to 9999",
                         threads);
    if (kernels && strcmp(kernels, "xnnpack") != 0 && strcmp(kernels, "builtin") != 0)
        return shmb_fail(e, SHMB_INVALID, "kernels=%.60s: expected xnnpack or builtin", kernels);
    if (!kernels) kernels = "xnnpack";
    struct loaded *s = m->state = calloc(1, sizeof *s);
    handle signature = NULL;
    if (!s) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    if (tflite_load(s, file, e) == SHMB_OK && map_file(s, m->file, e) == SHMB_OK &&
        compile(m, kernels, count, e) == SHMB_OK &&
        find_signature(m, key, &signature, e) == SHMB_OK &&
        declare_all(m, signature, e) == SHMB_OK) {
        bool any_open = false;
        for (uint32_t i = 0; i < m->input_count; i++) any_open |= find_open(m, i);
        int status = any_open ? 0
                              : s->api.GetCompiledModelOutputTensorLayouts(
                                    s->compiled, s->signature, m->output_count, s->layouts, true);
        if (!status) return SHMB_OK; /* else what cannot run says so now */
        failed(m, "cannot run it", status, SHMB_INVALID, e);
    }
    close_model(m);
    return e->status;
}

/* ---- Run ---- */

/* Makes the memory of a port known to LiteRT; its sizes are in s->types by now. */
static int tflite_bind(const struct loaded *s, uint32_t index, void *memory, size_t bytes) {
    if (s->buffers[index]) s->api.DestroyTensorBuffer(s->buffers[index]);
    s->buffers[index] = NULL;
    return s->api.CreateTensorBufferFromHostMemory(&s->types[index], memory, bytes, NULL,
                                                   &s->buffers[index]);
}

static int bind_inputs(const struct model *m) {
    const struct loaded *s = m->state;
    int status = 0;
    for (uint32_t i = 0; i < m->input_count && !status; i++) {
        const shmb_tensor *given = &m->given[i];
        int32_t *dims = s->types[i].layout.dims;
        bool resized = false;
        for (int k = 0; k < given->rank; k++) {
            if (given->dims[k] > INT32_MAX) return 1;
            resized |= dims[k] != given->dims[k];
            dims[k] = (int32_t)given->dims[k];
        }
        if (resized && (status = s->api.CompiledModelResizeInputTensor(s->compiled, s->signature, i,
                                                                       dims, (size_t)given->rank)))
            *dims = -1; /* it still has those of before */
        if (!status)
            status = tflite_bind(s, i, (void *)(uintptr_t)given->data,
                                 (size_t)given->size * shmb_dtype_size(given->dtype));
    }
    return status;
}

static shmb_status bind_outputs(struct model *m, struct error *e) {
    const struct loaded *s = m->state;
    int status = s->api.GetCompiledModelOutputTensorLayouts(s->compiled, s->signature,
                                                            m->output_count, s->layouts, true);
    for (uint32_t i = 0; i < m->output_count && !status; i++) {
        struct port *p = &m->outputs[i];
        int64_t size = 1;
        p->rank = s->layouts[i].rank;
        for (int k = 0; k < p->rank; k++) {
            size *= p->dims[k] = s->layouts[i].dims[k];
            if (p->dims[k] < 0)
                return shmb_fail(
                    e, SHMB_UNSUPPORTED,
                    "the model %.100s: the size of \"%.60s\" depends on the values of its inputs",
                    m->file, p->name);
        }
        size_t bytes = (size_t)size * shmb_dtype_size(p->dtype);
        free(s->advice[i]);
        if (!(s->advice[i] = aligned_alloc(64, (bytes + 64) & ~(size_t)63)))
            return shmb_fail(e, SHMB_NO_MEMORY, "no memory for the advice");
        m->results[i] = (shmb_tensor){.dtype = p->dtype,
                                      .rank = p->rank,
                                      .size = size,
                                      .dims = p->dims,
                                      .data = s->advice[i]};
        s->types[m->input_count + i].layout = s->layouts[i];
        status = tflite_bind(s, m->input_count + i, s->advice[i], bytes);
    }
    return status ? failed(m, "does not take these sizes", status, SHMB_MODEL, e) : SHMB_OK;
}

static shmb_status tflite_run(struct model *m, bool changed, struct error *e) {
    struct loaded *s = m->state;
    int status = 0;
    if (changed || !s->bound) {
        s->bound = false;
        if ((status = bind_inputs(m)))
            return failed(m, "does not take these sizes", status, SHMB_MODEL, e);
        if (bind_outputs(m, e)) return e->status;
        s->bound = true;
    }
    status = s->api.RunCompiledModel(s->compiled, s->signature, m->input_count, s->buffers,
                                     m->output_count, s->buffers + m->input_count);
    bool stopped = atomic_exchange(&s->stop, false);
    if (!status) return SHMB_OK;
    if (stopped) return shmb_fail(e, SHMB_INTERRUPTED, "interrupted while the model computed");
    return failed(m, "fails", status, SHMB_MODEL, e);
}

static void interrupt(struct model *m) {
    struct loaded *s = m->state;
    s->stop = true;
}

const struct backend shmb_tflite_backend = {
    .known = "threads, kernels, signature, library, agent.NAME, ",
    .open = open_model,
    .run = tflite_run,
    .interrupt = interrupt,
    .close = close_model};
