/* The hand-written half of libshmbridge-python.so. build.py puts it between cffi's embedding and
 * the functions of the public headers, each of which calls its namesake in `core`: the C core
 * inside Python's extension shmbridge._native, once Python runs. So what a message takes costs no
 * Python, and shmb_interrupt stays safe in signal handlers. Only shmb_open asks Python: for
 * plug-ins.
 *
 * cffi's own start would end the process, or return 0, which is SHMB_OK, where Python does not
 * start. Here `core` is then that of the libshmbridge.so beside this library, whose every runner is
 * one that failed to open and says why. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static char why[512];      /* Python does not run; "" when it does */
static _Atomic bool began; /* `core` is filled, one way or the other */
static pid_t owner;        /* the process whose Python we started; 0: it ran before */
static _Atomic int inside; /* calls that may be in Python now */
static _Atomic bool ended; /* nobody enters Python any more */
static _Thread_local struct {
    shmb_status status;
    const char *text;
} failure = {SHMB_UNSUPPORTED, "no runner has that scheme"}; /* of the open under way */

/* ---- A runner that failed to open ---- */

static shmb_status fail_open(void *context, const char *where, const shmb_options *options,
                             void **state, shmb_sink *sink) {
    (void)context, (void)where, (void)options, (void)state;
    return core.shmb_sink_fail(sink, failure.status, failure.text);
}

static shmb_status fail_evaluate(void *state, const shmb_tensor *features, int64_t count,
                                 shmb_dtype want, double deadline, shmb_sink *sink) {
    (void)state, (void)features, (void)count, (void)want, (void)deadline;
    return core.shmb_sink_fail(sink, SHMB_SYSTEM, "");
}

static const shmb_runner_kind failing = {
    .size = sizeof failing, .scheme = "failed", .open = fail_open, .evaluate = fail_evaluate};

static shmb_status open_failed(shmb_status status, const char *text, shmb_runner **out) {
    __typeof__(failure) none = failure;
    failure.status = status;
    failure.text = text;
    status = core.shmb_open("failed://", NULL, out);
    failure = none;
    return status;
}

/* ---- The end ---- */

static sem_t started, ending;
static pthread_t main_thread;

static void run_quietly(const char *module, const char *function) {
    PyObject *m = PyImport_ImportModule(module),
             *result = m ? PyObject_CallMethod(m, function, NULL) : NULL;
    if (!result) PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(m);
}

static void flush(const char *name) {
    PyObject *file = PySys_GetObject(name),
             *result = file && file != Py_None ? PyObject_CallMethod(file, "flush", NULL) : NULL;
    if (!result) PyErr_Clear();
    Py_XDECREF(result);
}

/* At the program's exit: what Python has buffered, and its atexit functions, are not lost. */
static void finish(void) {
    if (getpid() != owner || atomic_exchange(&ended, true)) return;
    if (!atomic_load(&inside)) {
        sem_post(&ending);
        pthread_join(main_thread, NULL);
        return;
    }
    /* a thread is in Python, which must not vanish under it */
    PyGILState_STATE gil = PyGILState_Ensure();
    run_quietly("atexit", "_run_exitfuncs");
    flush("stdout");
    flush("stderr");
    PyGILState_Release(gil);
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

/* ---- The start ---- */

static void say(const char *what, const char *detail) {
    snprintf(why, sizeof why, "%.250s%.250s", what, detail);
}

static bool succeeded(PyStatus status) {
    if (PyStatus_Exception(status))
        say("Python does not start: ", status.err_msg ? status.err_msg : "it would exit");
    return !PyStatus_Exception(status);
}

/* As the interpreter that this was built for would start, so that a virtual environment's packages
 * are there; but signals and the locale stay the program's, and a set-uid program ignores
 * $PYTHONPATH and the like. */
static bool initialize(void) {
    int trusted = !getauxval(AT_SECURE);
    PyPreConfig before;
    PyPreConfig_InitPythonConfig(&before);
    before.configure_locale = before.coerce_c_locale = before.parse_argv = 0;
    before.utf8_mode = 1;
    before.use_environment = trusted;
    if (!succeeded(Py_PreInitialize(&before))) return false;
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = config.parse_argv = 0;
    config.use_environment = config.user_site_directory = trusted;
    bool ok = succeeded(PyConfig_SetBytesString(&config, &config.program_name, EXECUTABLE)) &&
              succeeded(PyConfig_SetBytesString(&config, &config.executable, EXECUTABLE)) &&
              succeeded(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);
    return ok;
}

/* Modules that do something once, when they are imported, which must be here. threading takes the
 * thread for Python's main one; signal has Ctrl-C raise KeyboardInterrupt, whatever the
 * configuration says. */
static void import_here(void) {
    struct sigaction of_program;
    sigaction(SIGINT, NULL, &of_program);
    Py_XDECREF(PyImport_ImportModule("threading"));
    Py_XDECREF(PyImport_ImportModule("signal"));
    sigaction(SIGINT, &of_program, NULL);
}

/* Python's main thread is one of its own, for it must end in the thread that it began in, and ours
 * may be gone by then. */
static void *run_python(void *ok) {
    PyThreadState *state = NULL;
    *(bool *)ok = initialize();
    if (*(bool *)ok) {
        import_here();
        state = PyEval_SaveThread();
    }
    sem_post(&started);
    if (!state) return NULL;
    while (sem_wait(&ending)) continue;
    PyEval_RestoreThread(state);
    Py_FinalizeEx();
    return NULL;
}

static bool start_python(void) {
    sigset_t all, before;
    bool ok = false;
    sem_init(&started, 0, 0);
    sem_init(&ending, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are for its own threads */
    int error = pthread_create(&main_thread, NULL, run_python, &ok);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) say("there is no thread for Python: ", strerror(error));
    else
        while (sem_wait(&started)) continue;
    if (!ok) return false;
    owner = getpid();
    finish_first();
    return true;
}

/* Whoever loaded us with RTLD_LOCAL loaded Python so too, and extension modules would miss its
 * symbols. */
static void promote_python(void) {
    Dl_info info;
    if (dladdr((void *)&PyType_Type, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL | RTLD_NODELETE);
}

/* cffi says why it does not start on stderr alone: the usual cause is found here. */
static bool has_cffi(void) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule("_cffi_backend"), *type, *value, *trace;
    if (!module) {
        PyErr_Fetch(&type, &value, &trace);
        PyObject *text = value ? PyObject_Str(value) : NULL;
        const char *said = text ? PyUnicode_AsUTF8(text) : NULL;
        say(EXECUTABLE " started, but: ", said ? said : "cffi cannot be imported");
        PyErr_Clear();
        Py_XDECREF(text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    bool has = module;
    Py_XDECREF(module);
    PyGILState_Release(gil);
    return has;
}

static bool begin_python(void) {
    static const char built_for[] =
        Py_STRINGIFY(PY_MAJOR_VERSION) "." Py_STRINGIFY(PY_MINOR_VERSION) ".";
    promote_python();
    if (strncmp(Py_GetVersion(), built_for, sizeof built_for - 1) != 0) {
        say("this process has another Python than " EXECUTABLE
            ", for which this library was built: ",
            Py_GetVersion());
        return false;
    }
    if (!Py_IsInitialized() && !start_python()) return false;
    if (!has_cffi()) return false;
    if (cffi_start_python() && !*why) say("cffi did not start: its reasons are on stderr", "");
    return !*why;
}

/* Functions that say why: those of the core in C. */
static void begin_without_python(void) {
    static const char own_address;
    char path[PATH_MAX + 32] = LIBRARY;
    Dl_info self;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library && dladdr(&own_address, &self) && self.dli_fname && strrchr(self.dli_fname, '/')) {
        snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
                 self.dli_fname, strrchr(LIBRARY, '/'));
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; library && i < name_count; i++)
        if (!(table[i] = dlsym(library, names[i]))) library = NULL;
    if (!library) memset(table, 0, sizeof core);
    if (!library) fprintf(stderr, "shmbridge: %s\n", why);
}

static void begin(void) {
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&starting);
    if (!atomic_load(&began)) {
        if (!begin_python()) begin_without_python();
        if (core.shmb_register_runner) core.shmb_register_runner(&failing);
        atomic_store(&began, true);
    }
    pthread_mutex_unlock(&starting);
}

/* ---- Around every call ---- */

/* Is there a core to forward to? */
static bool ready(void) {
    if (!atomic_load_explicit(&began, memory_order_acquire)) begin();
    return core.shmb_open;
}

/* Before a call that may enter Python, and behind it. */
static shmb_status enter(void) {
    if (!ready()) return SHMB_SYSTEM;
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&ended) && (*why || Py_IsInitialized())) return SHMB_OK;
    atomic_fetch_sub(&inside, 1);
    return SHMB_CLOSED;
}

static void leave(void) {
    finish_first();
    atomic_fetch_sub(&inside, 1);
}

/* A child of the process whose Python we started has a copy of it that may not be used: its threads
 * are gone, and what they held is not. */
static bool in_child(void) { return owner && getpid() != owner; }

static shmb_status open_in_child(const char *url, const shmb_options *options, shmb_runner **out) {
    if (!url || strncmp(url, "shm://", 6) == 0 || !strstr(url, "://"))
        return core.shmb_open(url, options, out);
    return open_failed(SHMB_FORKED,
                       "Python was started before the fork, and does not work in the child: open "
                       "the first such runner there, or exec",
                       out);
}

shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out) {
    char text[2 * 4096]; /* longer than any URL may be */
    *out = NULL;
    shmb_status status = enter();
    if (status) return status;
    if (!url) url = secure_getenv("SHMBRIDGE_URL");
    if (*why) status = open_failed(SHMB_UNSUPPORTED, why, out);
    else if (in_child()) status = open_in_child(url, options, out);
    else if (url && (status = shmb_python_resolve(url, text, sizeof text)))
        status = open_failed(status, text, out);
    else status = core.shmb_open(url ? text : NULL, options, out);
    leave();
    return status;
}

void shmb_close(shmb_runner *r) {
    if (!r || enter()) return;
    /* What was inherited cannot close, since that would enter Python; no other runner takes a dtype
     * that is none for forked. */
    if (!in_child() || core.shmb_evaluate_as(r, (shmb_dtype)-1) != SHMB_FORKED) core.shmb_close(r);
    leave();
}

void shmb_interrupt(shmb_runner *r) {
    if (r && atomic_load(&began)) core.shmb_interrupt(r);
}

const char *shmb_version(void) { return VERSION; }
