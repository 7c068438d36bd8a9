/* ONNX Runtime's C API, used as efficiently as possible: one session, values over fixed memory,
 * outputs in place. arguments: the library and the model. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "direct.h"
#include "model/onnxruntime.h"

enum { MOST = 64 };

static const OrtFunction *api;
static OrtSession *session;
static OrtMemoryInfo *memory;
static const shmb_tensor *inputs;
static size_t count;
static const char *names[MOST], *output_names[1];

struct use {
    void *data[MOST];
    OrtValue *values[MOST], *outputs[1];
    OrtRunOptions *options;
    OrtIoBinding *binding;
    void *result;
};

static void must(OrtStatus *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", ORT(api, GetErrorMessage)(status));
    exit(1);
}

void direct_load(char **arguments, const shmb_tensor *of, size_t number) {
    OrtEnv *env;
    OrtSessionOptions *options;
    OrtAllocator *allocator;
    char *name;
    void *library = dlopen(arguments[0], RTLD_NOW | RTLD_LOCAL);
    union {
        void *address;
        const OrtApiBase *(*call)(void);
    } base = {library ? dlsym(library, "OrtGetApiBase") : NULL};
    if (!base.address) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    api = base.call()->GetApi(ORT_API);
    must(ORT(api, CreateEnv)(ORT_LOG_FATAL, "direct", &env));
    must(ORT(api, CreateSessionOptions)(&options));
    must(ORT(api, SetIntraOpNumThreads)(options, 1));
    must(ORT(api, CreateSession)(env, arguments[1], options, &session));
    must(ORT(api, CreateCpuMemoryInfo)(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &memory));
    must(ORT(api, GetAllocatorWithDefaultOptions)(&allocator));
    must(ORT(api, SessionGetOutputName)(session, 0, allocator, &name));
    output_names[0] = name;
    inputs = of;
    count = number;
    for (size_t i = 0; i < count; i++) names[i] = inputs[i].name;
}

void *direct_open(void) {
    struct use *u = calloc(1, sizeof *u);
    must(ORT(api, CreateRunOptions)(&u->options));
    for (size_t i = 0; i < count; i++) {
        const shmb_tensor *t = &inputs[i];
        size_t bytes = (size_t)t->size * shmb_dtype_size(t->dtype);
        u->data[i] = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
        must(ORT(api, CreateTensorWithDataAsOrtValue)(
            memory, u->data[i], bytes, t->dims, (size_t)t->rank,
            t->dtype == SHMB_FLOAT32 ? ORT_FLOAT : ORT_INT64, &u->values[i]));
    }
    return u;
}

void *direct_input(void *use, size_t index) { return ((struct use *)use)->data[index]; }

/* The first call: ONNX Runtime allocates the output, which all further calls reuse. */
static void first_run(struct use *u) {
    must(ORT(api, Run)(session, u->options, names, (const OrtValue *const *)u->values, count,
                       output_names, 1, u->outputs));
    must(ORT(api, GetTensorMutableData)(u->outputs[0], &u->result));
    must(ORT(api, CreateIoBinding)(session, &u->binding));
    for (size_t i = 0; i < count; i++)
        must(ORT(api, BindInput)(u->binding, names[i], u->values[i]));
    must(ORT(api, BindOutput)(u->binding, output_names[0], u->outputs[0]));
}

const void *direct_run(void *use) {
    struct use *u = use;
    if (!u->result) first_run(u);
    else must(ORT(api, RunWithBinding)(session, u->options, u->binding));
    return u->result;
}
