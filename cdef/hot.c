/* shmbridge._hot: the calls that a message takes, as plain C functions of Python's limited API.
 *
 * cffi releases the GIL around every call, and whoever releases it while another thread waits for it gets it back only a
 * switch interval (5 ms) later. So: look for a request and reply with the GIL held, and release it only to wait. The
 * functions are those that cffi binds too: their addresses come from there, so that there is one core in the process. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "host.h"
#include "shmbridge.h"

static int64_t (*poll_host)(shmb_host *);
static int64_t (*receive_host)(shmb_host *, int64_t);
static shmb_status (*reply_i64_host)(shmb_host *, int64_t, bool, int64_t);
static shmb_status (*reply_f64_host)(shmb_host *, int64_t, bool, double);
static void (*release_host)(shmb_host *, int64_t);

static PyObject *setup(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    void *address[5];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "expected 5 addresses, found %zd", count);
    for (int i = 0; i < 5; i++)
        if (!(address[i] = PyLong_AsVoidPtr(args[i]))) return NULL;
    memcpy(&poll_host, &address[0], sizeof poll_host);
    memcpy(&receive_host, &address[1], sizeof receive_host);
    memcpy(&reply_i64_host, &address[2], sizeof reply_i64_host);
    memcpy(&reply_f64_host, &address[3], sizeof reply_f64_host);
    memcpy(&release_host, &address[4], sizeof release_host);
    Py_RETURN_NONE;
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
    int64_t key = poll_host(host);
    if (key < 0) {
        Py_BEGIN_ALLOW_THREADS key = receive_host(host, timeout);
        Py_END_ALLOW_THREADS
    }
    return PyLong_FromLongLong(key);
}

/* Host and key of a reply; false with the exception set. */
static bool parse(PyObject *const *args, Py_ssize_t count, shmb_host **host, int64_t *key,
                  bool *keep) {
    if (count != 4)
        return PyErr_Format(PyExc_TypeError,
                            "expected host, key, keep and value, found %zd arguments", count),
               false;
    *host = PyLong_AsVoidPtr(args[0]);
    *key = PyLong_AsLongLong(args[1]);
    *keep = args[2] == Py_True;
    return !PyErr_Occurred();
}

/* reply_i64(host, key, keep, value) -> shmb_status: shmb_host_reply_i64. OverflowError beyond int64. */
static PyObject *reply_i64(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    shmb_host *host;
    int64_t key;
    bool keep;
    if (!parse(args, count, &host, &key, &keep)) return NULL;
    int64_t value = PyLong_AsLongLong(args[3]);
    if (value == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong((long)reply_i64_host(host, key, keep, value));
}

/* reply_f64(host, key, keep, value) -> shmb_status: shmb_host_reply_f64. */
static PyObject *reply_f64(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    shmb_host *host;
    int64_t key;
    bool keep;
    if (!parse(args, count, &host, &key, &keep)) return NULL;
    double value = PyFloat_AsDouble(args[3]);
    if (value == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong((long)reply_f64_host(host, key, keep, value));
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
    release_host(host, key);
    Py_RETURN_NONE;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD(setup),     METHOD(receive), METHOD(reply_i64),
                                METHOD(reply_f64), METHOD(release), {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* the core's own locks do */
#endif
    {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hot(void) { return PyModuleDef_Init(&definition); }
