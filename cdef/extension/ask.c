#include <stdatomic.h>
#include <string.h>

#include "fastpath.h"

/* What a Runner is below. */
struct asker {
    PyObject_HEAD shmb_runner *runner;
    PyObject *advice; /* a dict, or NULL */
    _Atomic char busy;
    char closing; /* to be disposed of by whoever is busy with it last */
    char exact;   /* numbers too are read by _copy */
};
static PyTypeObject *asker_type;

/* Adds one feature; false: it goes the long way. */
static bool add(shmb_runner *r, PyObject *name, PyObject *object) {
    struct value value;
    const char *text = fast_name(name);
    if (!text || !fast_value(object, &value)) return false;
    const shmb_tensor *t = &value.tensor;
    void *at = shmb_runner_add(r, text, t->dtype, SHMB_TENSOR, t->rank, t->dims, NULL);
    size_t bytes = (size_t)t->size * shmb_dtype_size(t->dtype);
    if (at && bytes >= FAST_LONG_COPY) {
        Py_BEGIN_ALLOW_THREADS memcpy(at, t->data, bytes);
        Py_END_ALLOW_THREADS
    } else if (at && bytes) {
        memcpy(at, t->data, bytes);
    }
    fast_release_values(&value, 1);
    return true;
}

/* Features that need the long way go by asker._fill(name, value). A value's own code may change the
 * dict. */
static bool fill(struct asker *a, PyObject *features) {
    PyObject *name, *value;
    Py_ssize_t size = PyDict_Size(features);
    for (Py_ssize_t at = 0; PyDict_Next(features, &at, &name, &value);) {
        Py_INCREF(name);
        Py_INCREF(value);
        bool filled = add(a->runner, name, value) ||
                      fast_done(PyObject_CallMethod((PyObject *)a, "_fill", "OO", name, value));
        Py_DECREF(value);
        Py_DECREF(name);
        if (!filled) return false;
        if (PyDict_Size(features) == size) continue;
        PyErr_SetString(PyExc_RuntimeError, "the dict of features changed size while it was read");
        return false;
    }
    return true;
}

/* Where a step fails, its question is given up. */
static bool stepped(struct asker *a, bool done) {
    if (!done) shmb_runner_abandon(a->runner, SHMB_INTERRUPTED);
    return done;
}

enum step { ASK, SEND, RECEIVE };

static int go_on(const struct asker *a, enum step step, shmb_ticket ticket) {
    if (step == SEND) return shmb_send_continue(a->runner, ticket);
    return step == ASK ? shmb_runner_continue(a->runner) : shmb_receive_continue(a->runner);
}

/* The rest of a step that has come to that status, in slices, between which signals are handled. */
static bool finish(struct asker *a, int status, enum step step, shmb_ticket ticket) {
    while (status == PENDING && !a->closing && !PyErr_CheckSignals()) {
        Py_BEGIN_ALLOW_THREADS status = go_on(a, step, ticket);
        Py_END_ALLOW_THREADS
    }
    if (status && !PyErr_Occurred())
        fast_done(PyObject_CallMethod((PyObject *)a, "_raise", "i", status));
    return stepped(a, !status);
}

static bool ask(struct asker *a, PyObject *features, shmb_dtype want) {
    if (features && !fill(a, features)) return stepped(a, false);
    int status;
    Py_BEGIN_ALLOW_THREADS status = (int)shmb_runner_start(a->runner, want);
    if (!status) status = shmb_runner_continue(a->runner);
    Py_END_ALLOW_THREADS return finish(a, status, ASK, 0);
}

static bool send(struct asker *a, PyObject *features, shmb_dtype want, shmb_ticket *ticket) {
    if (!fill(a, features)) return stepped(a, false);
    int status;
    Py_BEGIN_ALLOW_THREADS *ticket = shmb_send_start(a->runner, want);
    status = shmb_send_continue(a->runner, *ticket);
    Py_END_ALLOW_THREADS return finish(a, status, SEND, *ticket);
}

static bool receive(struct asker *a, shmb_ticket ticket) {
    int status;
    Py_BEGIN_ALLOW_THREADS status = shmb_receive_start(a->runner, ticket);
    if (status == PENDING) status = shmb_receive_continue(a->runner);
    Py_END_ALLOW_THREADS return finish(a, status, RECEIVE, ticket);
}

static PyObject *value_of(struct asker *a, int64_t index, const shmb_tensor *t) {
    if (!a->exact && !t->rank && t->kind == SHMB_TENSOR) return fast_number(t);
    return PyObject_CallMethod((PyObject *)a, "_copy", "L", (long long)index);
}

/* The advice: the value of its only field, or all by name. */
static PyObject *read_advice(struct asker *a) {
    PyObject *advice = PyDict_New(), *value = NULL;
    int64_t count = shmb_advice_count(a->runner);
    for (int64_t i = 0; advice && i < count; i++) {
        shmb_tensor t;
        shmb_advice_at(a->runner, i, &t);
        Py_XDECREF(value);
        value = value_of(a, i, &t);
        if (!value || PyDict_SetItemString(advice, t.name, value)) Py_CLEAR(advice);
    }
    a->advice = advice;
    if (advice && count == 1) return value;
    Py_XDECREF(value);
    Py_XINCREF(advice);
    return advice;
}

/* What another thread has closed meanwhile. An error that is under way stays. */
static bool dispose(struct asker *a) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    bool done = fast_done(PyObject_CallMethod((PyObject *)a, "_dispose", NULL));
    if (done || type) PyErr_Restore(type, error, trace);
    return done;
}

/* True where the runner is ours until `leave`; else asker._raise_in_use() has set the exception. */
static bool enter(struct asker *a) {
    if (a->closing || atomic_exchange(&a->busy, 1))
        return fast_done(PyObject_CallMethod((PyObject *)a, "_raise_in_use", NULL));
    Py_CLEAR(a->advice);
    return true;
}

static PyObject *leave(struct asker *a, PyObject *result) {
    atomic_store(&a->busy, 0);
    if (a->closing && !dispose(a)) Py_CLEAR(result);
    return result;
}

/* The runner that (asker, features, want) begins with; NULL with the exception set. */
static struct asker *question_of(PyObject *const *args, Py_ssize_t count, shmb_dtype *want) {
    if (count != 3 || !PyObject_TypeCheck(args[0], asker_type) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a runner, a dict and a dtype");
        return NULL;
    }
    *want = (shmb_dtype)PyLong_AsLong(args[2]);
    struct asker *a = (struct asker *)args[0];
    return !PyErr_Occurred() && enter(a) ? a : NULL;
}

/* evaluate(asker, features, want) -> the advice. */
static PyObject *fast_evaluate(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    shmb_dtype want;
    struct asker *a = question_of(args, count, &want);
    if (!a) return NULL;
    return leave(a, ask(a, args[1], want) ? read_advice(a) : NULL);
}

/* _fill_all(features) and _ask() -> the advice: an evaluate in two steps, for whoever holds the
 * asker. */
static PyObject *asker_fill_all(PyObject *self, PyObject *features) {
    struct asker *a = (struct asker *)self;
    if (!PyDict_Check(features)) return PyErr_Format(PyExc_TypeError, "expected a dict");
    if (!stepped(a, fill(a, features))) return NULL;
    Py_RETURN_NONE;
}

static PyObject *asker_ask(PyObject *self, PyObject *unused) {
    struct asker *a = (struct asker *)self;
    (void)unused;
    Py_CLEAR(a->advice);
    if (a->closing) return PyObject_CallMethod((PyObject *)a, "_raise_in_use", NULL);
    return ask(a, NULL, SHMB_ANY) ? read_advice(a) : NULL;
}

/* send(asker, features, want) -> the ticket. */
static PyObject *fast_send(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    shmb_dtype want;
    shmb_ticket ticket;
    struct asker *a = question_of(args, count, &want);
    if (!a) return NULL;
    return leave(a, send(a, args[1], want, &ticket) ? PyLong_FromLongLong(ticket) : NULL);
}

/* receive_advice(asker, ticket) -> the advice. */
static PyObject *fast_receive_advice(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyObject_TypeCheck(args[0], asker_type))
        return PyErr_Format(PyExc_TypeError, "expected a runner and a ticket");
    shmb_ticket ticket = PyLong_AsLongLong(args[1]);
    struct asker *a = (struct asker *)args[0];
    if (PyErr_Occurred() || !enter(a)) return NULL;
    return leave(a, receive(a, ticket) ? read_advice(a) : NULL);
}

static PyObject *asker_hold(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(!atomic_exchange(&((struct asker *)self)->busy, 1));
}

static PyObject *asker_let_go(PyObject *self, PyObject *unused) {
    (void)unused;
    atomic_store(&((struct asker *)self)->busy, 0);
    Py_RETURN_NONE;
}

#define OBJECTS(X) X(advice)
FAST_COLLECTS(asker, OBJECTS)

static PyMemberDef members[] = {{"_address", T_ULONGLONG, offsetof(struct asker, runner), 0, NULL},
                                {"_advice", T_OBJECT, offsetof(struct asker, advice), 0, NULL},
                                {"_closing", T_BOOL, offsetof(struct asker, closing), 0, NULL},
                                {"_exact", T_BOOL, offsetof(struct asker, exact), 0, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {{"_fill_all", asker_fill_all, METH_O, NULL},
                                {"_ask", asker_ask, METH_NOARGS, NULL},
                                {"_hold", asker_hold, METH_NOARGS, NULL},
                                {"_let_go", asker_let_go, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)fast_dealloc},
                              FAST_COLLECTED(asker),
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {0, NULL}};
static PyType_Spec spec = {"shmbridge._fastpath.Asker", sizeof(struct asker), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

/* Not methods: a call of one takes 20 ns more. */
static PyMethodDef functions[] = {FAST_METHOD("evaluate", fast_evaluate),
                                  FAST_METHOD("send", fast_send),
                                  FAST_METHOD("receive_advice", fast_receive_advice),
                                  {NULL, NULL, 0, NULL}};
int fast_add_asker(PyObject *module) {
    return PyModule_AddFunctions(module, functions) || fast_add_class(module, &spec, &asker_type);
}
