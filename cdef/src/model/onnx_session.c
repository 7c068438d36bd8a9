#include "model/onnx_session.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "process/library.h"

shmb_status shmb_onnx_check(const OrtFunction *api, OrtStatus *status, shmb_status as,
                            const char *file, struct error *e) {
    if (!status) return SHMB_OK;
    shmb_fail(e, as, "%.150s: %s", file, ORT(api, GetErrorMessage)(status));
    ORT(api, ReleaseStatus)(status);
    return as;
}

/* ---- The library ---- */

static void *onnx_library(const char *file, struct error *e) {
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so", NULL};
    const struct library wanted = {.what = "ONNX Runtime",
                                   .file = file,
                                   .variable = "SHMBRIDGE_ONNXRUNTIME",
                                   .package = "onnxruntime/capi/libonnxruntime.so.*",
                                   .names = names,
                                   .hint = "pip install 'shmbridge[onnx]', or name its file with "
                                           "library= or $SHMBRIDGE_ONNXRUNTIME"};
    return shmb_library_open(&wanted, e);
}

/* The environment is one for the process, and stays, as the library does. */
static shmb_status onnx_start(struct session *s, const char *file, OrtEnv **env, struct error *e) {
    union {
        void *address;
        const OrtApiBase *(*call)(void);
    } base = {0};
    void *library = onnx_library(file, e);
    if (library)
        base.address =
            shmb_library_symbol(library, file ? file : "ONNX Runtime", "OrtGetApiBase", e);
    if (!base.address) return e->status;
    const OrtFunction *api = s->api = base.call()->GetApi(ORT_API);
    if (!api)
        return shmb_fail(e, SHMB_INVALID,
                         "ONNX Runtime %.20s is too old: expected 1.%d or later: pip install -U "
                         "onnxruntime, or name another with library=FILE",
                         base.call()->GetVersionString(), ORT_API);
    /* what it would log comes as an error's text, and a compiler's stderr is not its own */
    OrtStatus *status = ORT(api, CreateEnv)(ORT_LOG_FATAL, "shmbridge", env);
    if (!status)
        status =
            ORT(api, CreateCpuMemoryInfo)(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &s->memory);
    if (!status) status = ORT(api, GetAllocatorWithDefaultOptions)(&s->names);
    return shmb_onnx_check(api, status, SHMB_INVALID, "ONNX Runtime", e);
}

/* ---- The model ---- */

/* "CUDAExecutionProvider" and "CUDA" are one; the CPU is always there, and last. */
static shmb_status add_provider(const OrtFunction *api, OrtSessionOptions *options,
                                const char *name, size_t bytes, struct error *e) {
    static const char tail[] = "ExecutionProvider";
    size_t end = bytes < sizeof tail ? bytes : bytes - (sizeof tail - 1);
    char plain[64], what[80];
    if (strncmp(name + end, tail, sizeof tail - 1) != 0) end = bytes;
    snprintf(plain, sizeof plain, "%.*s", (int)end, name);
    snprintf(what, sizeof what, "providers=%s", plain);
    if (strcasecmp(plain, "CPU") == 0) return SHMB_OK;
    return shmb_onnx_check(
        api, ORT(api, SessionOptionsAppendExecutionProvider)(options, plain, NULL, NULL, 0),
        SHMB_INVALID, what, e);
}

static shmb_status onnx_set_options(const OrtFunction *api, OrtSessionOptions *options,
                                    const char *number, const char *providers, struct error *e) {
    int32_t threads = 1;
    if (number && !shmb_url_number(number, 1024, &threads))
        return shmb_fail(e, SHMB_INVALID,
                         "threads=%.60s: expected 1 to 1024, or 0 for as many as there are cores",
                         number);
    OrtStatus *status = ORT(api, SetIntraOpNumThreads)(options, threads);
    if (!status) status = ORT(api, DisableCpuMemArena)(options); /* it keeps memory */
    if (shmb_onnx_check(api, status, SHMB_INVALID, "ONNX Runtime", e)) return e->status;
    for (const char *name = providers; name && *name;) {
        size_t bytes = strcspn(name, ",");
        if (add_provider(api, options, name, bytes, e)) return e->status;
        name += bytes + (name[bytes] == ',');
    }
    return SHMB_OK;
}

shmb_status shmb_onnx_session_open(struct session *s, const char *file, struct url *url,
                                   struct error *e) {
    const char *threads = shmb_url_take(url, "threads"), *library = shmb_url_take(url, "library"),
               *providers = shmb_url_take(url, "providers");
    OrtEnv *env;
    OrtSessionOptions *options;
    s->bindable = !providers;
    if (onnx_start(s, library, &env, e)) return e->status;
    if (shmb_onnx_check(s->api, ORT(s->api, CreateSessionOptions)(&options), SHMB_INVALID, file, e))
        return e->status;
    if (!onnx_set_options(s->api, options, threads, providers, e))
        shmb_onnx_check(s->api, ORT(s->api, CreateSession)(env, file, options, &s->session),
                        SHMB_INVALID, file, e);
    ORT(s->api, ReleaseSessionOptions)(options);
    return e->status;
}

void shmb_onnx_session_close(struct session *s) {
    if (s->session) ORT(s->api, ReleaseSession)(s->session);
    if (s->memory) ORT(s->api, ReleaseMemoryInfo)(s->memory);
}
