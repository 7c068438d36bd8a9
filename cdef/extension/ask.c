#include <string.h>

#include "hot.h"

enum { PENDING = -1 }; /* of shmb_runner_continue */

/* Adds one feature; false: it goes the long way. */
static bool add(shmb_runner *r, PyObject *name, PyObject *object) {
    struct value value;
    const char *text = hot_name(name);
    if (!text || !hot_value(object, &value)) return false;
    const shmb_tensor *t = &value.tensor;
    void *at = core.shmb_runner_add(r, text, t->dtype, SHMB_TENSOR, t->rank, t->dims, NULL);
    size_t bytes = (size_t)t->size * core.shmb_dtype_size(t->dtype);
    if (at && bytes >= HOT_LONG_COPY) {
        Py_BEGIN_ALLOW_THREADS memcpy(at, t->data, bytes);
        Py_END_ALLOW_THREADS
    } else if (at && bytes) {
        memcpy(at, t->data, bytes);
    }
    hot_release_values(&value, 1);
    return true;
}

/* ask(runner, features, want, fill) -> status, -1 where it waits: fills the dict's features, those
 * that need the long way by fill(name, value), and asks. */
PyObject *hot_ask(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4 || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a runner, a dict, a dtype and a function");
    shmb_runner *r = PyLong_AsVoidPtr(args[0]);
    long want = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(args[1], &at, &name, &value);) {
        if (add(r, name, value)) continue;
        Py_INCREF(name);
        Py_INCREF(value);
        PyObject *done = PyObject_CallFunctionObjArgs(args[3], name, value, NULL);
        Py_DECREF(value);
        Py_DECREF(name);
        if (!done) return NULL;
        Py_DECREF(done);
    }
    int status;
    Py_BEGIN_ALLOW_THREADS status = (int)core.shmb_runner_start(r, (shmb_dtype)want);
    if (!status) status = core.shmb_runner_continue(r);
    Py_END_ALLOW_THREADS return PyLong_FromLong(status);
}

/* read(runner, copy) -> the advice by name. copy(i) reads what is no single number. */
PyObject *hot_read(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "expected a runner and a function");
    shmb_runner *r = PyLong_AsVoidPtr(args[0]);
    PyObject *advice = PyErr_Occurred() ? NULL : PyDict_New();
    for (int64_t i = 0, n = core.shmb_advice_count(r); advice && i < n; i++) {
        shmb_tensor t;
        core.shmb_advice_at(r, i, &t);
        bool plain = !t.rank && t.kind == SHMB_TENSOR;
        PyObject *value =
            plain ? hot_number(&t) : PyObject_CallFunction(args[1], "L", (long long)i);
        if (!value || PyDict_SetItemString(advice, t.name, value)) Py_CLEAR(advice);
        Py_XDECREF(value);
    }
    return advice;
}
