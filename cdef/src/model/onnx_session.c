#include "model/onnx_session.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "process/library.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the two lists */
static struct runtime *runtimes;
static struct session *sessions;

shmb_status shmb_onnx_check(const OrtFunction *api, OrtStatus *status, shmb_status as,
                            const char *file, struct error *e) {
    if (!status) return SHMB_OK;
    shmb_fail(e, as, "%.150s: %s", file, ORT(api, GetErrorMessage)(status));
    ORT(api, ReleaseStatus)(status);
    return as;
}

/* ---- The library ---- */

static shmb_status onnx_start(struct runtime *rt, const char *file, struct error *e) {
    union {
        void *address;
        const OrtApiBase *(*call)(void);
    } base = {shmb_library_symbol(rt->library, file, "OrtGetApiBase", e)};
    if (!base.address) return e->status;
    rt->api = base.call()->GetApi(ORT_API);
    if (!rt->api)
        return shmb_fail(e, SHMB_INVALID,
                         "ONNX Runtime %.20s is too old: expected 1.%d or later: pip install -U "
                         "onnxruntime, or name another with library=FILE",
                         base.call()->GetVersionString(), ORT_API);
    /* what it would log comes as an error's text, and a compiler's stderr is not its own */
    OrtStatus *status = ORT(rt->api, CreateEnv)(ORT_LOG_FATAL, "shmbridge", &rt->env);
    if (!status)
        status = ORT(rt->api, CreateCpuMemoryInfo)(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT,
                                                   &rt->memory);
    if (!status) status = ORT(rt->api, GetAllocatorWithDefaultOptions)(&rt->names);
    return shmb_onnx_check(rt->api, status, SHMB_INVALID, "ONNX Runtime", e);
}

/* The library that is loaded already, unless another is named; NULL with e. */
static const struct runtime *runtime_find(const char *file, struct error *e) {
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so", NULL};
    if (runtimes && !file) return runtimes;
    struct runtime *rt = calloc(1, sizeof *rt);
    if (!rt) {
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
        return NULL;
    }
    rt->library =
        shmb_library_open(&(struct library){.what = "ONNX Runtime",
                                            .file = file,
                                            .variable = "SHMBRIDGE_ONNXRUNTIME",
                                            .package = "onnxruntime/capi/libonnxruntime.so.*",
                                            .names = names,
                                            .hint = "pip install 'shmbridge[onnx]', or name its "
                                                    "file with library= or $SHMBRIDGE_ONNXRUNTIME"},
                          e);
    const struct runtime *same = runtimes;
    while (same && same->library != rt->library) same = same->next;
    if (!rt->library || same || onnx_start(rt, file ? file : "ONNX Runtime", e)) {
        free(rt);
        return same;
    }
    rt->next = runtimes;
    return runtimes = rt;
}

/* ---- Sessions ---- */

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
                                    const struct choice *c, struct error *e) {
    void *library; /* of custom operators: stays */
    OrtStatus *status = ORT(api, SetIntraOpNumThreads)(options, c->threads);
    /* the session's threads would queue at its lock, and it keeps memory */
    if (!status) status = ORT(api, DisableCpuMemArena)(options);
    if (shmb_onnx_check(api, status, SHMB_INVALID, "ONNX Runtime", e)) return e->status;
    if (c->custom_ops &&
        shmb_onnx_check(api, ORT(api, RegisterCustomOpsLibrary)(options, c->custom_ops, &library),
                        SHMB_INVALID, "custom_ops", e))
        return e->status;
    for (const char *name = c->providers; name && *name;) {
        size_t bytes = strcspn(name, ",");
        if (add_provider(api, options, name, bytes, e)) return e->status;
        name += bytes + (name[bytes] == ',');
    }
    return SHMB_OK;
}

static shmb_status onnx_load(struct session *s, const char *file, const struct choice *c,
                             struct error *e) {
    const OrtFunction *api = s->runtime->api;
    OrtSessionOptions *options;
    if (shmb_onnx_check(api, ORT(api, CreateSessionOptions)(&options), SHMB_INVALID, file, e))
        return e->status;
    if (!onnx_set_options(api, options, c, e))
        shmb_onnx_check(api, ORT(api, CreateSession)(s->runtime->env, file, options, &s->session),
                        SHMB_INVALID, file, e);
    ORT(api, ReleaseSessionOptions)(options);
    return e->status;
}

/* A fork's child begins without sessions: another thread may have been in the middle of one. */
static void onnx_in_child(void) {
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    sessions = NULL;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, onnx_in_child); }

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* With the mutex: the session of that file and choice, loaded now if nobody has it. */
static struct session *session_find(const char *file, const struct choice *c, struct error *e) {
    char text[URL_ROOM];
    struct stat found;
    if (stat(file, &found)) {
        shmb_fail_errno(e, file);
        e->status = SHMB_INVALID;
        return NULL;
    }
    const struct runtime *rt = runtime_find(c->library, e);
    if (!rt) return NULL;
    const char *providers = c->providers ? c->providers : "",
               *custom_ops = c->custom_ops ? c->custom_ops : "";
    snprintf(text, sizeof text, "%d %s\n%s", c->threads, providers, custom_ops);
    for (struct session *s = sessions; s; s = s->next)
        if (s->runtime == rt && same_file(&s->file, &found) && strcmp(s->choice, text) == 0) {
            s->users++;
            return s;
        }
    struct session *s = calloc(1, sizeof *s);
    if (s)
        *s = (struct session){.runtime = rt,
                              .bindable = !c->providers,
                              .file = found,
                              .choice = strdup(text),
                              .users = 1,
                              .next = sessions};
    if (s && s->choice && onnx_load(s, file, c, e) == SHMB_OK) return sessions = s;
    if (!e->status) shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    if (s) free(s->choice);
    free(s);
    return NULL;
}

struct session *shmb_onnx_session_get(const char *file, const struct choice *c, struct error *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&mutex);
    struct session *s = session_find(file, c, e);
    pthread_mutex_unlock(&mutex);
    return s;
}

void shmb_onnx_session_drop(struct session *s) {
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

/* ---- What the URL says ---- */

shmb_status shmb_onnx_choose(struct choice *c, struct url *url, struct error *e) {
    const char *threads = shmb_url_take(url, "threads");
    *c = (struct choice){.threads = 1,
                         .providers = shmb_url_take(url, "providers"),
                         .custom_ops = shmb_url_take(url, "custom_ops"),
                         .library = shmb_url_take(url, "library")};
    char *end = NULL;
    if (threads)
        c->threads = *threads >= '0' && *threads <= '9' ? (int)strtol(threads, &end, 10) : -1;
    if (threads && (!end || *end || c->threads < 0 || c->threads > 1024))
        return shmb_fail(e, SHMB_INVALID,
                         "threads=%.60s: expected 1 to 1024, or 0 for as many as there are cores",
                         threads);
    return SHMB_OK;
}
