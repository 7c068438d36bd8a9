#include "fastpath.h"

#include <string.h>
#include <time.h>

enum {
    CONTENDED_NS = 1000 * 1000,    /* for the GIL, where another thread computes */
    PATIENCE_NS = 5 * 1000 * 1000, /* a switch interval: what it would take to get the GIL back */
};

struct fast_core core;

/* setup(addresses, classes): of the functions that CORE names, and for fast_set_classes. */
static PyObject *setup(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    enum { FUNCTIONS = sizeof core / sizeof(void *) };
    if (count != FUNCTIONS + 3)
        return PyErr_Format(PyExc_TypeError, "expected %d addresses and 3 classes, found %zd",
                            (int)FUNCTIONS, count);
    for (int i = 0; i < FUNCTIONS; i++) {
        void *address = PyLong_AsVoidPtr(args[i]);
        if (!address) return NULL;
        memcpy((char *)&core + (size_t)i * sizeof address, &address, sizeof address);
    }
    PyObject *const *classes = args + FUNCTIONS;
    if (fast_set_classes(classes[0], classes[1], classes[2]))
        return PyErr_Format(PyExc_TypeError, "expected classes");
    Py_RETURN_NONE;
}

int64_t fast_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool patient; /* the next request is waited for with the GIL held */

/* It took long to get the GIL back, for a message that takes its sender longer to write than a poll
 * looks: be patient. */
int64_t fast_wait(shmb_host *host, int64_t timeout) {
    int64_t key, came;
    Py_BEGIN_ALLOW_THREADS key = core.shmb_host_receive(host, timeout);
    came = fast_now_ns();
    Py_END_ALLOW_THREADS const shmb_message *m =
        fast_now_ns() - came > CONTENDED_NS ? core.shmb_host_message(host, key) : NULL;
    patient = m && m->body_bytes >= FAST_LONG_COPY;
    return key;
}

int64_t fast_receive(shmb_host *host, int64_t timeout) {
    int64_t key = core.shmb_host_poll(host);
    if (key < 0 && patient && timeout >= PATIENCE_NS)
        for (int64_t until = fast_now_ns() + PATIENCE_NS; key < 0 && fast_now_ns() < until;)
            key = core.shmb_host_poll(host);
    return key < 0 ? fast_wait(host, timeout) : key;
}

/* receive(host, timeout_ns) -> key, or -shmb_status: shmb_host_receive. */
static PyObject *receive(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "expected a host and a timeout, found %zd arguments",
                            count);
    shmb_host *host = PyLong_AsVoidPtr(args[0]);
    int64_t timeout = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(fast_receive(host, timeout));
}

/* release(host, key): shmb_host_release. */
static PyObject *release(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "expected a host and a key, found %zd arguments",
                            count);
    shmb_host *host = PyLong_AsVoidPtr(args[0]);
    int64_t key = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    core.shmb_host_release(host, key);
    Py_RETURN_NONE;
}

void fast_dealloc(PyObject *self) {
    PyTypeObject *own = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    inquiry clear = (inquiry)PyType_GetSlot(own, Py_tp_clear);
    freefunc release = (freefunc)PyType_GetSlot(own, Py_tp_free);
    clear(self);
    release(self);
    Py_DECREF(own);
}

#define NAME(name, result, parameters) #name,
static int add_all(PyObject *module) {
    static const char *const names[] = {FAST_CORE(NAME)};
    PyObject *core_names = PyList_New(0);
    for (size_t i = 0; core_names && i < sizeof names / sizeof *names; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyList_Append(core_names, name)) Py_CLEAR(core_names);
        Py_XDECREF(name);
    }
    if (!core_names || PyModule_AddObject(module, "CORE", core_names)) return -1;
    return fast_add_question(module) || fast_add_questions(module) || fast_add_asker(module) ||
                   fast_add_loop(module) || fast_add_steps(module)
               ? -1
               : 0;
}

#define METHOD(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD("setup", setup),
                                METHOD("receive", receive),
                                METHOD("release", release),
                                METHOD("reply", fast_reply),
                                METHOD("renewed", fast_renewed),
                                METHOD("text", fast_text),
                                METHOD("collect", fast_collect),
                                {"end_turn", fast_end_turn, METH_O, NULL},
                                METHOD("gather", fast_gather),
                                METHOD("reply_rows", fast_reply_rows),
                                METHOD("evaluate", fast_evaluate),
                                METHOD("send", fast_send),
                                METHOD("receive_advice", fast_receive_advice),
                                {"loop", fast_loop, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_all},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* the core's own locks do */
#endif
                                   {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fastpath", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fastpath(void) { return PyModuleDef_Init(&definition); }
