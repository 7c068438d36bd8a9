/* onnx://: models in this process, by ONNX Runtime. Its library is loaded when the first is opened, and stays. A session is shared by
 * all runners of the same file and options, in any thread; values, names and run options are each runner's own. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "library.h"
#include "model.h"
#include "onnxruntime.h"

/* A loaded ONNX Runtime. */
struct runtime {
    void *library;
    const OrtFunction *api;
    OrtEnv *env;
    OrtMemoryInfo *memory;
    OrtAllocator *names;
    struct runtime *next;
};

/* What of the URL makes one session differ from another. */
struct choice {
    int threads, level;
    const char *providers, *custom_ops, *library; /* or NULL */
};

struct session {
    const struct runtime *runtime;
    OrtSession *session;
    bool bindable; /* on other devices than the CPU, binding an input copies it there */
    struct stat file;
    char *choice; /* as text */
    int users;
    struct session *next;
};

/* A session in use by one runner: m->session. */
struct use {
    const OrtFunction *api;
    struct session *shared;
    OrtSession *session;
    OrtRunOptions *options;
    OrtIoBinding *
        binding; /* of all values, once two runs had the same: it saves a twentieth of a run; or NULL */
    const char **names; /* of inputs, then outputs */
    OrtValue **values;  /* likewise; an output that is NULL is ONNX Runtime's to allocate */
    int64_t (*dims)[SHMB_MAX_RANK]; /* of outputs */
    bool made;                      /* are there values of the inputs? */
    bool vary;                      /* do outputs have other sizes for inputs of the same sizes? */
    _Atomic unsigned stopping, stopped;
    unsigned seen; /* of stopping */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the two lists */
static struct runtime *runtimes;
static struct session *sessions;

static const shmb_dtype dtypes[] = {
    [ORT_FLOAT] = SHMB_FLOAT32,    [ORT_UINT8] = SHMB_UINT8,   [ORT_INT8] = SHMB_INT8,
    [ORT_UINT16] = SHMB_UINT16,    [ORT_INT16] = SHMB_INT16,   [ORT_INT32] = SHMB_INT32,
    [ORT_INT64] = SHMB_INT64,      [ORT_BOOL] = SHMB_BOOL,     [ORT_FLOAT16] = SHMB_FLOAT16,
    [ORT_DOUBLE] = SHMB_FLOAT64,   [ORT_UINT32] = SHMB_UINT32, [ORT_UINT64] = SHMB_UINT64,
    [ORT_BFLOAT16] = SHMB_BFLOAT16};
enum { ELEMENTS = sizeof dtypes / sizeof *dtypes };

/* SHMB_OK, or ONNX Runtime's failure as ours. */
static shmb_status check(const OrtFunction *api, OrtStatus *status, shmb_status as,
                         const char *file, struct error *e) {
    if (!status) return SHMB_OK;
    fail(e, as, "%.150s: %s", file, ORT(api, GetErrorMessage)(status));
    ORT(api, ReleaseStatus)(status);
    return as;
}

/* ---- The library ---- */

static shmb_status start(struct runtime *rt, const char *file, struct error *e) {
    union {
        void *address;
        const OrtApiBase *(*call)(void);
    } base = {library_symbol(rt->library, file, "OrtGetApiBase", e)};
    if (!base.address) return e->status;
    rt->api = base.call()->GetApi(ORT_API);
    if (!rt->api)
        return fail(
            e, SHMB_INVALID,
            "ONNX Runtime %.20s is too old: expected 1.%d or later: pip install -U onnxruntime, or name another with library=FILE",
            base.call()->GetVersionString(), ORT_API);
    /* what it would log comes as an error's text, and a compiler's stderr is not its own */
    OrtStatus *status = ORT(rt->api, CreateEnv)(ORT_LOG_FATAL, "shmbridge", &rt->env);
    if (!status)
        status = ORT(rt->api, CreateCpuMemoryInfo)(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT,
                                                   &rt->memory);
    if (!status) status = ORT(rt->api, GetAllocatorWithDefaultOptions)(&rt->names);
    return check(rt->api, status, SHMB_INVALID, "ONNX Runtime", e);
}

/* The library that is loaded already, unless another is named; NULL with e. */
static const struct runtime *runtime_find(const char *file, struct error *e) {
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so", NULL};
    if (runtimes && !file) return runtimes;
    struct runtime *rt = calloc(1, sizeof *rt);
    if (!rt) return fail(e, SHMB_NO_MEMORY, "no memory for a runner"), NULL;
    rt->library = library_open(
        &(struct library){
            .what = "ONNX Runtime",
            .file = file,
            .variable = "SHMBRIDGE_ONNXRUNTIME",
            .package = "onnxruntime/capi/libonnxruntime.so.*",
            .names = names,
            .hint =
                "pip install 'shmbridge[onnx]', or name its file with library= or $SHMBRIDGE_ONNXRUNTIME"},
        e);
    const struct runtime *same = runtimes;
    while (same && same->library != rt->library) same = same->next;
    if (!rt->library || same || start(rt, file ? file : "ONNX Runtime", e)) return free(rt), same;
    rt->next = runtimes;
    return runtimes = rt;
}

/* ---- Sessions ---- */

/* "CUDAExecutionProvider", "CUDA" and "cuda" are one; the CPU is always there, and last. */
static shmb_status add_provider(const OrtFunction *api, OrtSessionOptions *options,
                                const char *name, size_t bytes, struct error *e) {
    static const char tail[] = "ExecutionProvider";
    char **known = NULL, text[256] = "", plain[64] = "";
    int count = 0;
    if (check(api, ORT(api, GetAvailableProviders)(&known, &count), SHMB_INVALID, "ONNX Runtime",
              e))
        return e->status;
    for (int i = 0; i < count; i++) {
        const char *end = strstr(known[i], tail);
        size_t its = end ? (size_t)(end - known[i]) : strlen(known[i]);
        if (its < sizeof plain && (bytes == its || bytes == strlen(known[i])) &&
            strncasecmp(known[i], name, bytes) == 0)
            snprintf(plain, sizeof plain, "%.*s", (int)its, known[i]);
        if (strlen(text) + strlen(known[i]) + 3 < sizeof text)
            strcat(strcat(text, i ? ", " : ""), known[i]);
    }
    check(api, ORT(api, ReleaseAvailableProviders)(known, count), SHMB_INVALID, "ONNX Runtime", e);
    if (!*plain)
        return fail(e, SHMB_INVALID, "providers: expected some of %s, found \"%.*s\"", text,
                    (int)bytes, name);
    if (strcmp(plain, "CPU") == 0) return SHMB_OK;
    return check(api,
                 ORT(api, SessionOptionsAppendExecutionProvider)(options, plain, NULL, NULL, 0),
                 SHMB_INVALID, "providers", e);
}

static shmb_status set_options(const OrtFunction *api, OrtSessionOptions *options,
                               const struct choice *c, struct error *e) {
    void *library; /* of custom operators: stays */
    OrtStatus *status = ORT(api, SetSessionGraphOptimizationLevel)(options, c->level);
    if (!status) status = ORT(api, SetIntraOpNumThreads)(options, c->threads);
    if (!status)
        status = ORT(api, DisableCpuMemArena)(
            options); /* the session's threads would queue at its lock, and it keeps memory */
    if (check(api, status, SHMB_INVALID, "ONNX Runtime", e)) return e->status;
    if (c->custom_ops &&
        check(api, ORT(api, RegisterCustomOpsLibrary)(options, c->custom_ops, &library),
              SHMB_INVALID, "custom_ops", e))
        return e->status;
    for (const char *name = c->providers; name && *name;) {
        size_t bytes = strcspn(name, ",");
        if (add_provider(api, options, name, bytes, e)) return e->status;
        name += bytes + (name[bytes] == ',');
    }
    return SHMB_OK;
}

static shmb_status load(struct session *s, const char *file, const struct choice *c,
                        struct error *e) {
    const OrtFunction *api = s->runtime->api;
    OrtSessionOptions *options;
    if (check(api, ORT(api, CreateSessionOptions)(&options), SHMB_INVALID, file, e))
        return e->status;
    if (!set_options(api, options, c, e))
        check(api, ORT(api, CreateSession)(s->runtime->env, file, options, &s->session),
              SHMB_INVALID, file, e);
    ORT(api, ReleaseSessionOptions)(options);
    return e->status;
}

/* A fork's child begins without sessions: another thread may have been in the middle of one. */
static void in_child(struct inherited *handle) {
    (void)handle;
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    sessions = NULL;
}

static void watch_forks(void) {
    static struct inherited handle;
    fork_hold();
    fork_watch(&handle, in_child);
    fork_let_go();
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* With the mutex: the session of that file and choice, loaded now if nobody has it. */
static struct session *session_find(const char *file, const struct choice *c, struct error *e) {
    char text[URL_ROOM];
    struct stat found;
    if (stat(file, &found)) return fail_errno(e, file), e->status = SHMB_INVALID, NULL;
    const struct runtime *rt = runtime_find(c->library, e);
    if (!rt) return NULL;
    snprintf(text, sizeof text, "%d %d %s\n%s", c->threads, c->level,
             c->providers ? c->providers : "", c->custom_ops ? c->custom_ops : "");
    for (struct session *s = sessions; s; s = s->next)
        if (s->runtime == rt && same_file(&s->file, &found) && strcmp(s->choice, text) == 0)
            return s->users++, s;
    struct session *s = calloc(1, sizeof *s);
    if (s)
        *s = (struct session){.runtime = rt,
                              .bindable = !c->providers,
                              .file = found,
                              .choice = strdup(text),
                              .users = 1,
                              .next = sessions};
    if (s && s->choice && load(s, file, c, e) == SHMB_OK) return sessions = s;
    if (!e->status) fail(e, SHMB_NO_MEMORY, "no memory for a model");
    if (s) free(s->choice);
    free(s);
    return NULL;
}

static struct session *session_get(const char *file, const struct choice *c, struct error *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&mutex);
    struct session *s = session_find(file, c, e);
    pthread_mutex_unlock(&mutex);
    return s;
}

static void session_drop(struct session *s) {
    pthread_mutex_lock(&mutex);
    bool last = --s->users == 0;
    for (struct session **at = &sessions; last && *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&mutex);
    if (!last) return;
    ORT(s->runtime->api, ReleaseSession)(s->session);
    free(s->choice);
    free(s);
}

/* ---- What the model declares ---- */

static shmb_status refuse(const char *file, const char *side, const char *name, const char *what,
                          const char *instead, struct error *e) {
    return fail(e, SHMB_INVALID, "%.150s: the %s \"%.60s\" is %s, which no tensor here can be: %s",
                file, side, name, what, instead);
}

static shmb_status read_tensor(const OrtFunction *api, const OrtTypeInfo *info, const char *file,
                               const char *side, struct port *p, struct error *e) {
    static const char *const kinds[] = {
        "of an unknown kind", "a tensor", "a sequence", "a map", "opaque",
        "a sparse tensor",    "optional"};
    static const char *const others[] = {[ORT_STRING] = "of strings",
                                         [ORT_COMPLEX64] = "of complex64",
                                         [ORT_COMPLEX128] = "of complex128"};
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    int kind = 0, element = 0;
    size_t rank = 0;
    OrtStatus *status = ORT(api, GetOnnxTypeFromTypeInfo)(info, &kind);
    if (!status) status = ORT(api, CastTypeInfoToTensorInfo)(info, &tensor);
    if (check(api, status, SHMB_INVALID, file, e)) return e->status;
    if (kind != ORT_KIND_TENSOR || !tensor)
        return refuse(
            file, side, p->name, kinds[kind > 0 && kind <= ORT_KIND_OPTIONAL ? kind : 0],
            "export the model with plain tensors there (scikit-learn's classifiers: zipmap=False)",
            e);
    status = ORT(api, GetTensorElementType)(tensor, &element);
    if (!status) status = ORT(api, GetDimensionsCount)(tensor, &rank);
    if (!status && rank <= SHMB_MAX_RANK) status = ORT(api, GetDimensions)(tensor, p->dims, rank);
    if (check(api, status, SHMB_INVALID, file, e)) return e->status;
    p->dtype = element >= 0 && element < ELEMENTS ? dtypes[element] : SHMB_ANY;
    p->rank = (int32_t)rank;
    if (p->dtype == SHMB_ANY)
        return refuse(file, side, p->name,
                      element >= 0 && element <= ORT_COMPLEX128 && others[element]
                          ? others[element]
                          : "of a packed or 8-bit float dtype",
                      "encode it as numbers of another dtype outside of the model", e);
    if (rank > SHMB_MAX_RANK)
        return refuse(file, side, p->name, "of more than 8 dims", "reshape it", e);
    return SHMB_OK;
}

static shmb_status read_port(const struct session *s, size_t i, bool input, const char *file,
                             struct port *p, struct error *e) {
    const OrtFunction *api = s->runtime->api;
    OrtTypeInfo *info = NULL;
    char *name = NULL;
    OrtStatus *status =
        input ? ORT(api, SessionGetInputName)(s->session, i, s->runtime->names, &name)
              : ORT(api, SessionGetOutputName)(s->session, i, s->runtime->names, &name);
    if (!status)
        status = input ? ORT(api, SessionGetInputTypeInfo)(s->session, i, &info)
                       : ORT(api, SessionGetOutputTypeInfo)(s->session, i, &info);
    if (name) {
        p->name = strdup(name);
        OrtStatus *freed = ORT(api, AllocatorFree)(s->runtime->names, name);
        if (freed) ORT(api, ReleaseStatus)(freed);
    }
    if (check(api, status, SHMB_INVALID, file, e)) return e->status;
    if (!p->name) fail(e, SHMB_NO_MEMORY, "no memory for a model");
    else read_tensor(api, info, file, input ? "input" : "output", p, e);
    ORT(api, ReleaseTypeInfo)(info);
    return e->status;
}

static shmb_status read_ports(struct model *m, const struct session *s, struct error *e) {
    const OrtFunction *api = s->runtime->api;
    size_t inputs, outputs;
    OrtStatus *status = ORT(api, SessionGetInputCount)(s->session, &inputs);
    if (!status) status = ORT(api, SessionGetOutputCount)(s->session, &outputs);
    if (check(api, status, SHMB_INVALID, m->file, e)) return e->status;
    if (!model_ports(&m->inputs, &m->input_count, inputs) ||
        !model_ports(&m->outputs, &m->output_count, outputs))
        return fail(e, SHMB_NO_MEMORY, "no memory for a model");
    for (size_t i = 0; i < inputs && !e->status; i++)
        read_port(s, i, true, m->file, &m->inputs[i], e);
    for (size_t i = 0; i < outputs && !e->status; i++)
        read_port(s, i, false, m->file, &m->outputs[i], e);
    return e->status;
}

/* ---- Open and close ---- */

static shmb_status choose(struct choice *c, struct url *url, struct error *e) {
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"disable", ORT_LEVEL_DISABLE},
                  {"basic", ORT_LEVEL_BASIC},
                  {"extended", ORT_LEVEL_EXTENDED},
                  {"all", ORT_LEVEL_ALL}};
    const char *threads = url_take(url, "threads"), *level = url_take(url, "level");
    *c = (struct choice){.threads = 1, .level = level ? -1 : ORT_LEVEL_ALL};
    c->providers = url_take(url, "providers");
    c->custom_ops = url_take(url, "custom_ops");
    c->library = url_take(url, "library");
    char *end = NULL;
    if (threads)
        c->threads = *threads >= '0' && *threads <= '9' ? (int)strtol(threads, &end, 10) : -1;
    if (threads && (!end || *end || c->threads < 0 || c->threads > 1024))
        return fail(e, SHMB_INVALID,
                    "threads=%.60s: expected 1 to 1024, or 0 for as many as there are cores",
                    threads);
    for (size_t i = 0; level && i < sizeof levels / sizeof *levels; i++)
        if (strcmp(level, levels[i].name) == 0) c->level = levels[i].level;
    if (c->level < 0)
        return fail(e, SHMB_INVALID, "level=%.60s: expected disable, basic, extended or all",
                    level);
    return SHMB_OK;
}

static void drop_values(struct use *u, size_t from, size_t to) {
    if (u->binding) ORT(u->api, ReleaseIoBinding)(u->binding);
    u->binding = NULL;
    for (size_t i = from; i < to; i++) {
        if (u->values[i]) ORT(u->api, ReleaseValue)(u->values[i]);
        u->values[i] = NULL;
    }
}

static void onnx_close(struct model *m) {
    struct use *u = m->session;
    if (u->values) drop_values(u, 0, m->input_count + m->output_count);
    if (u->options) ORT(u->api, ReleaseRunOptions)(u->options);
    session_drop(u->shared);
    free(u->names);
    free(u->values);
    free(u->dims);
    free(u);
}

static shmb_status prepare(struct model *m, struct use *u, struct error *e) {
    size_t count = m->input_count + m->output_count;
    u->names = calloc(count + 1, sizeof *u->names);
    u->values = calloc(count + 1, sizeof(OrtValue *));
    u->dims = calloc(m->output_count + 1, sizeof *u->dims);
    if (!u->names || !u->values || !u->dims)
        return fail(e, SHMB_NO_MEMORY, "no memory for a model");
    for (size_t i = 0; i < count; i++)
        u->names[i] = i < m->input_count ? m->inputs[i].name : m->outputs[i - m->input_count].name;
    return check(u->api, ORT(u->api, CreateRunOptions)(&u->options), SHMB_INVALID, m->file, e);
}

static shmb_status onnx_open(struct model *m, struct url *url, struct error *e) {
    struct choice c;
    if (choose(&c, url, e)) return e->status;
    struct use *u = m->session = calloc(1, sizeof *u);
    if (!u) return fail(e, SHMB_NO_MEMORY, "no memory for a model");
    u->shared = session_get(m->file, &c, e);
    if (!u->shared) return free(u), e->status;
    u->api = u->shared->runtime->api;
    u->session = u->shared->session;
    if (read_ports(m, u->shared, e) || prepare(m, u, e)) onnx_close(m);
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
            u->shared->runtime->memory, (void *)t->data,
            (size_t)t->size * shmb_dtype_size(t->dtype), t->dims, (size_t)t->rank, element,
            &u->values[i]);
        if (check(u->api, status, SHMB_MODEL, m->file, e)) return e->status;
    }
    u->made = true;
    return SHMB_OK;
}

/* Where an output is that ONNX Runtime allocated. (One that is an input itself lies where the feature does, until that is written again.) */
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
    if (check(api, status, SHMB_MODEL, m->file, e)) return e->status;
    if (rank > SHMB_MAX_RANK)
        return fail(e, SHMB_MODEL, "%.150s: the output \"%.60s\" has %zu dims: expected at most 8",
                    m->file, m->outputs[i].name, rank);
    for (size_t k = 0; k < rank; k++) size *= u->dims[i][k];
    m->results[i] = (shmb_tensor){.dtype = m->outputs[i].dtype,
                                  .rank = (int32_t)rank,
                                  .size = size,
                                  .dims = u->dims[i],
                                  .data = data};
    return SHMB_OK;
}

static OrtStatus *bind(struct model *m, struct use *u) {
    OrtStatus *status = ORT(u->api, CreateIoBinding)(u->session, &u->binding);
    for (uint32_t i = 0; !status && i < m->input_count; i++)
        status = ORT(u->api, BindInput)(u->binding, u->names[i], u->values[i]);
    for (uint32_t i = m->input_count; !status && i < m->input_count + m->output_count; i++)
        status = ORT(u->api, BindOutput)(u->binding, u->names[i], u->values[i]);
    return status;
}

static OrtStatus *compute(struct model *m, struct use *u, bool reused) {
    OrtStatus *status = reused && u->shared->bindable && !u->binding ? bind(m, u) : NULL;
    if (status || u->binding)
        return status ? status : ORT(u->api, RunWithBinding)(u->session, u->options, u->binding);
    return ORT(u->api, Run)(u->session, u->options, u->names, (const OrtValue *const *)u->values,
                            m->input_count, u->names + m->input_count, m->output_count,
                            u->values + m->input_count);
}

/* Was the run stopped? Then those who stop it are waited for, so that nothing of it is left for the next. */
static bool was_stopped(struct use *u) {
    if (u->stopping == u->seen) return false;
    while (u->stopped != (u->seen = u->stopping)) sched_yield();
    OrtStatus *status = ORT(u->api, RunOptionsUnsetTerminate)(u->options);
    if (status) ORT(u->api, ReleaseStatus)(status);
    return true;
}

/* Outputs go where those of the run before lay, which ONNX Runtime allocated: that is right as long as they have the same sizes. It
 * fails when they have not; then it allocates them anew each time. */
static shmb_status onnx_run(struct model *m, bool changed, int64_t until, struct error *e) {
    (void)until; /* model.c stops it */
    struct use *u = m->session;
    uint32_t first = m->input_count, last = first + m->output_count;
    if (changed) u->made = false;
    if (!u->made && make_values(m, u, e)) return e->status;
    if (u->vary) drop_values(u, first, last);
    bool reused = m->output_count && u->values[last - 1];
    OrtStatus *status = compute(m, u, reused);
    bool stopped = was_stopped(u);
    if (status && reused && !stopped) {
        ORT(u->api, ReleaseStatus)(status);
        drop_values(u, first, last);
        status = compute(m, u, false);
        stopped = was_stopped(u);
        u->vary = !status;
        reused = false;
    }
    if (status) {
        check(u->api, status, SHMB_MODEL, m->file, e);
        drop_values(u, first, last);
        return stopped ? fail(e, SHMB_INTERRUPTED, "interrupted while the model computed")
                       : e->status;
    }
    for (uint32_t i = 0; !reused && i < m->output_count; i++)
        if (read_result(m, u, i, e)) return drop_values(u, first, last), e->status;
    return SHMB_OK;
}

static void onnx_interrupt(struct model *m) {
    struct use *u = m->session;
    u->stopping++;
    OrtStatus *status = ORT(u->api, RunOptionsSetTerminate)(u->options);
    if (status) ORT(u->api, ReleaseStatus)(status);
    u->stopped++;
}

static const struct backend backend = {
    .known = "threads, level, providers, custom_ops, library, agent.NAME, ",
    .open = onnx_open,
    .run = onnx_run,
    .interrupt = onnx_interrupt,
    .close = onnx_close};

static shmb_status open_runner(shmb_runner *r, struct url *url, const shmb_options *options) {
    (void)options;
    return model_open(&backend, r, url);
}

const struct runner_kind onnx_runner = MODEL_RUNNER("onnx", open_runner);
