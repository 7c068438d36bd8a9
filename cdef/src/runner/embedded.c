/* Python in this process, for the schemes and SerDes that this library lacks: the package shmbridge
 * registers them here. It is the Python that the process runs, or the one that `shmbridge embed`
 * has written down, with the packages of its virtual environment. Its functions are looked up by
 * their names, so that one library serves every Python. */
#include "runner/embedded.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/clock.h"
#include "message/sink.h"
#include "process/library.h"
#include "runner/runner.h"

/* ---- Python's C API, as in every Python since 3.8 ---- */

struct py_status {
    int type; /* 0: no error */
    const char *function, *message;
    int exit_code;
};
struct py_before { /* PyPreConfig */
    int kind, parse_argv, isolated, use_environment, configure_locale, coerce_c_locale,
        coerce_c_locale_warn, utf8_mode, dev_mode, allocator;
    char more[256];
};
struct py_config { /* PyConfig, whose members differ: only its functions know them */
    max_align_t members[128];
};

#define PYTHON(X)                                                                                  \
    X(int, Py_IsInitialized, (void))                                                               \
    X(void, PyPreConfig_InitPythonConfig, (struct py_before *))                                    \
    X(struct py_status, Py_PreInitialize, (const struct py_before *))                              \
    X(void, PyConfig_InitPythonConfig, (struct py_config *))                                       \
    X(struct py_status, PyConfig_SetBytesArgv, (struct py_config *, ssize_t, char *const *))       \
    X(struct py_status, Py_InitializeFromConfig, (const struct py_config *))                       \
    X(void, PyConfig_Clear, (struct py_config *))                                                  \
    X(int, PyRun_SimpleString, (const char *))                                                     \
    X(int, PyGILState_Ensure, (void))                                                              \
    X(void, PyGILState_Release, (int))                                                             \
    X(void *, PyEval_SaveThread, (void))                                                           \
    X(void, PyEval_RestoreThread, (void *))                                                        \
    X(int, Py_FinalizeEx, (void))
#define POINTER(result, name, parameters) result(*name) parameters;
#define NAME(result, name, parameters) #name,
static struct {
    PYTHON(POINTER)
} python;

enum { LOOK_NS = 1000 * 1000 };

static char executable[PATH_MAX]; /* the interpreter to start as */

/* Reads the file that `shmbridge embed` wrote: the interpreter and its library, a line each.
 * Extension modules need the library's symbols. */
static void *load_python(const char *file, const char **why) {
    char library[PATH_MAX];
    FILE *lines = fopen(file, "re");
    bool read = lines && fgets(executable, sizeof executable, lines) &&
                fgets(library, sizeof library, lines) && *executable == '/' && *library == '/';
    if (lines) fclose(lines);
    *why = lines ? "expected what `shmbridge embed` writes" : "it cannot be read";
    if (!read) return NULL;
    executable[strcspn(executable, "\n")] = library[strcspn(library, "\n")] = 0;
    void *loaded = dlopen(library, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!loaded) *why = dlerror();
    return loaded;
}

static bool find_python(struct error *e) {
    static const char *const names[] = {PYTHON(NAME)};
    static const struct library which = {
        .what = "Python",
        .variable = "SHMBRIDGE_PYTHON",
        .package = "shmbridge/lib/embedded-python",
        .load = load_python,
        .hint = "run `shmbridge embed` once, or `shmbridge embed -o FILE` and set "
                "SHMBRIDGE_PYTHON=FILE"};
    void *found[sizeof names / sizeof *names], *from = RTLD_DEFAULT,
                                               *here = dlsym(from, "Py_IsInitialized");
    memcpy(&python.Py_IsInitialized, &here, sizeof here);
    if ((!here || !python.Py_IsInitialized()) && !(from = shmb_library_open(&which, e)))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(found[i] = shmb_library_symbol(from, "Python", names[i], e))) return false;
    _Static_assert(sizeof found == sizeof python, "a name for each function");
    memcpy(&python, found, sizeof python);
    return !here || here == found[0] ||
           !shmb_fail(e, SHMB_UNSUPPORTED, "this process has another Python than %.200s",
                      executable);
}

/* ---- The end ---- */

static pid_t owner;        /* the process whose Python we started; 0: it ran before */
static _Atomic int inside; /* calls that may be in Python now */
static _Atomic bool ended; /* nobody enters Python any more */
static _Atomic bool began; /* the Python that we start is there, or has failed */
static sem_t ending;
static pthread_t main_thread;

/* At the program's exit: what Python has buffered, and its atexit functions, are not lost. */
static void finish(void) {
    if (getpid() != owner || atomic_exchange(&ended, true)) return;
    if (!atomic_load(&inside)) {
        sem_post(&ending);
        pthread_join(main_thread, NULL);
        return;
    }
    /* a thread is in Python, which must not vanish under it */
    int gil = python.PyGILState_Ensure();
    python.PyRun_SimpleString("try:\n"
                              "    import atexit, sys\n"
                              "    atexit._run_exitfuncs()\n"
                              "    for file in filter(None, (sys.stdout, sys.stderr)):\n"
                              "        file.flush()\n"
                              "except BaseException:\n"
                              "    pass\n");
    python.PyGILState_Release(gil);
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    memcpy(out, &info->dlpi_adds, sizeof info->dlpi_adds);
    return 1;
}

/* Python ends before the destructors of the libraries that it has loaded run, so behind each load
 * we are the last to register again. */
static void finish_first(void) {
    static _Atomic unsigned long long seen;
    unsigned long long loaded = 0;
    if (!owner) return;
    dl_iterate_phdr(count_loaded, &loaded);
    if (atomic_exchange(&seen, loaded) != loaded) atexit(finish);
}

/* ---- Around every call of Python's functions ---- */

static struct shmb_embedding embedding;

/* A child of the process whose Python we started has a copy of it that may not be used: its threads
 * are gone, and what they held is not. */
static shmb_status enter(struct error *e) {
    if (owner && getpid() != owner)
        return shmb_fail(e, SHMB_FORKED,
                         "Python was started before the fork, and does not work in the child: open "
                         "the first such runner there, or exec");
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&ended) && python.Py_IsInitialized()) return SHMB_OK;
    atomic_fetch_sub(&inside, 1);
    return shmb_fail(e, SHMB_CLOSED, "Python has ended, since the program ends");
}

/* Passes on what Python returned. */
static shmb_status leave(shmb_status returned) {
    finish_first();
    atomic_fetch_sub(&inside, 1);
    return returned;
}

static shmb_status python_open(void *context, const char *where, const shmb_options *options,
                               void **state, shmb_sink *sink) {
    if (enter(sink->error)) return sink->error->status;
    return leave(embedding.runner.open(context, where, options, state, sink));
}

static shmb_status python_evaluate(void *state, const shmb_tensor *features, int64_t count,
                                   shmb_dtype want, double deadline, shmb_sink *sink) {
    if (enter(sink->error)) return sink->error->status;
    return leave(embedding.runner.evaluate(state, features, count, want, deadline, sink));
}

static void python_close(void *state) {
    struct error ignored;
    if (enter(&ignored)) return;
    embedding.runner.close(state);
    leave(SHMB_OK);
}

static shmb_status python_encode(void *context, shmb_side side, const shmb_tensor *fields,
                                 int64_t count, shmb_dtype want, shmb_sink *sink) {
    if (enter(sink->error)) return sink->error->status;
    return leave(embedding.serdes.encode(context, side, fields, count, want, sink));
}

static shmb_status python_decode(void *context, shmb_side side, const void *bytes, size_t size,
                                 shmb_dtype want, shmb_sink *sink) {
    if (enter(sink->error)) return sink->error->status;
    return leave(embedding.serdes.decode(context, side, bytes, size, want, sink));
}

static shmb_status add_runner(const char *scheme, void *context) {
    shmb_runner_kind *kind = malloc(sizeof *kind);
    char *copy = strdup(scheme);
    if (kind)
        *kind = (shmb_runner_kind){.size = sizeof *kind,
                                   .scheme = copy,
                                   .context = context,
                                   .open = python_open,
                                   .evaluate = python_evaluate,
                                   .close = python_close};
    shmb_status status = kind && copy ? shmb_plugin_add(kind) : SHMB_NO_MEMORY;
    if (status) free(kind), free(copy);
    return status;
}

static shmb_status add_serdes(const char *name, void *context) {
    shmb_serdes *serdes = malloc(sizeof *serdes);
    char *copy = strdup(name);
    if (serdes)
        *serdes = (shmb_serdes){.size = sizeof *serdes,
                                .name = copy,
                                .context = context,
                                .encode = python_encode,
                                .decode = python_decode};
    shmb_status status = serdes && copy ? shmb_register_serdes(serdes) : SHMB_NO_MEMORY;
    if (status) free(serdes), free(copy);
    return status;
}

/* ---- The start ---- */

/* Has the package fill `embedding`, or says why not. */
static void begin_package(void) {
    char code[1024];
    snprintf(code, sizeof code,
             "try:\n"
             "    __import__('shmbridge._embedding')._embedding.begin('%s', %zu)\n"
             "except BaseException as error:\n"
             "    import ctypes, sys\n"
             "    text = f'{sys.executable} started, but: {error}'.encode(errors='replace')[:%zu]\n"
             "    ctypes.memmove(%zu, text, len(text))\n",
             shmb_version(), (size_t)&embedding, sizeof embedding.why - 1, (size_t)embedding.why);
    if (python.PyRun_SimpleString(code) && !*embedding.why)
        snprintf(embedding.why, sizeof embedding.why, "Python says why on stderr");
}

static bool succeeded(struct py_status status) {
    if (status.type)
        snprintf(embedding.why, sizeof embedding.why, "Python does not start: %s",
                 status.message ? status.message : "it would exit");
    return !status.type;
}

/* As the interpreter would start; but the locale stays the program's, and a set-uid program ignores
 * $PYTHONPATH and the like. */
static bool initialize(void) {
    char *words[] = {executable, (char[]){"-Es"}};
    struct py_before before;
    struct py_config config;
    python.PyPreConfig_InitPythonConfig(&before);
    before.configure_locale = before.coerce_c_locale = before.parse_argv = 0;
    before.utf8_mode = 1;
    before.use_environment = !getauxval(AT_SECURE);
    if (!succeeded(python.Py_PreInitialize(&before))) return false;
    python.PyConfig_InitPythonConfig(&config);
    bool ok =
        succeeded(python.PyConfig_SetBytesArgv(&config, getauxval(AT_SECURE) ? 2 : 1, words)) &&
        succeeded(python.Py_InitializeFromConfig(&config));
    python.PyConfig_Clear(&config);
    return ok;
}

/* Python's main thread is one of its own, for it must end in the thread that it began in, and ours
 * may be gone by then. Signals stay the program's. */
static void *run_python(void *nothing) {
    static const int its_signals[] = {SIGINT, SIGPIPE, SIGXFSZ};
    struct sigaction of_program[3];
    void *state = NULL;
    for (int i = 0; i < 3; i++) sigaction(its_signals[i], NULL, &of_program[i]);
    if (initialize()) {
        begin_package();
        state = python.PyEval_SaveThread();
        owner = getpid();
    }
    for (int i = 0; i < 3; i++) sigaction(its_signals[i], &of_program[i], NULL);
    atomic_store(&began, true);
    if (!state) return nothing;
    while (sem_wait(&ending)) continue;
    python.PyEval_RestoreThread(state);
    python.Py_FinalizeEx();
    return nothing;
}

bool shmb_embedded_begin(double seconds, struct error *e) {
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    static int64_t start; /* of the Python that we start, for every caller; 0: there is none */
    pthread_mutex_lock(&starting);
    if (!start && !embedding.resolve && !*embedding.why && find_python(e)) {
        sem_init(&ending, 0, 0);
        embedding.add_runner = add_runner;
        embedding.add_serdes = add_serdes;
        if (python.Py_IsInitialized()) {
            int gil = python.PyGILState_Ensure();
            begin_package();
            python.PyGILState_Release(gil);
        } else if (shmb_library_thread(&main_thread, run_python)) {
            start = shmb_clock_ns();
        } else {
            snprintf(embedding.why, sizeof embedding.why, "there is no thread for Python");
        }
    }
    int64_t until = start ? later(start, shmb_clock_span(seconds)) : 0;
    pthread_mutex_unlock(&starting);
    while (until && !atomic_load(&began)) {
        if (shmb_clock_ns() > until)
            return !shmb_fail(e, SHMB_TIMEOUT,
                              "Python has not started in time: look what hangs in "
                              "%.200s -c 'import shmbridge' (a sitecustomize?), or allow it a "
                              "longer connect_timeout",
                              executable);
        shmb_sleep(LOOK_NS);
    }
    finish_first();
    if (*embedding.why) shmb_fail(e, SHMB_UNSUPPORTED, "%s", embedding.why);
    return embedding.resolve;
}

shmb_status shmb_embedded_resolve(struct url *url, struct error *e) {
    char text[2 * URL_ROOM];
    shmb_options ignored = {.size = sizeof ignored}; /* those of every kind have been taken */
    size_t scheme = (size_t)snprintf(text, sizeof text, "%s://", url->scheme);
    shmb_url_where(url, text + scheme, sizeof text - scheme);
    if (enter(e)) return e->status;
    shmb_status status = leave(embedding.resolve(&embedding, text, sizeof text));
    return status ? shmb_fail(e, status, "%s", text) : shmb_url_split(text, url, &ignored, e);
}
