#include <stdlib.h>

#include "fastpath.h"

PyTypeObject *fast_question_type;
static PyObject *copy_name;

bool fast_question_held(const struct question *q) {
    if (q->copy || !q->flat || !q->roots) return false;
    if (Py_REFCNT(q->flat) > 1 + PyDict_Size(q->roots)) return true;
    PyObject *key, *array;
    for (Py_ssize_t at = 0; PyDict_Next(q->roots, &at, &key, &array);)
        if (Py_REFCNT(array) > 1) return true;
    return false;
}

shmb_status fast_question_reply(struct question *q, const shmb_tensor *fields, int64_t count,
                                bool *keep) {
    size_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (size_t)fields[i].size * core.shmb_dtype_size(fields[i].dtype);
    q->open = 0; /* first: from here on no thread takes a new view */
    *keep = fast_question_held(q);
    shmb_status status;
    if (bytes < FAST_LONG_COPY) {
        status = core.shmb_host_reply(q->host, q->key, *keep, fields, count);
    } else {
        Py_BEGIN_ALLOW_THREADS status = core.shmb_host_reply(q->host, q->key, *keep, fields, count);
        Py_END_ALLOW_THREADS
    }
    if (status == SHMB_INVALID) q->open = 1;
    return status;
}

static bool add_field(const char *name, PyObject *object, struct value *values, shmb_tensor *fields,
                      int64_t *count) {
    if (!name || *count == FAST_FIELDS || !fast_value(object, &values[*count])) return false;
    fields[*count] = values[*count].tensor;
    fields[(*count)++].name = name;
    return true;
}

/* The fields that reply(advice, **named) was given; false: not all go the short way. The names live
 * as long as the call, whose own dict `named` is. */
static bool fields_of(PyObject *advice, PyObject *named, struct value *values, shmb_tensor *fields,
                      int64_t *count) {
    PyObject *name, *object;
    *count = 0;
    if (advice && !add_field("advice", advice, values, fields, count)) return false;
    for (Py_ssize_t at = 0; PyDict_Next(named, &at, &name, &object);)
        if (!add_field(fast_name(name), object, values, fields, count)) return false;
    return *count;
}

/* reply(question, advice, named): True: it was sent; None: nothing was done, and the long way is to
 * be gone; else status << 1 | keep. advice: Ellipsis where there is none. */
PyObject *fast_reply(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3 || !PyObject_TypeCheck(args[0], fast_question_type) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a question, a value and a dict");
    struct question *q = (struct question *)args[0];
    struct value values[FAST_FIELDS];
    shmb_tensor fields[FAST_FIELDS];
    int64_t n = 0;
    bool keep;
    shmb_status status = SHMB_INVALID;
    PyObject *advice = args[1] == Py_Ellipsis ? NULL : args[1];
    if (q->open && q->direct && fields_of(advice, args[2], values, fields, &n))
        status = fast_question_reply(q, fields, n, &keep);
    fast_release_values(values, n);
    if (status == SHMB_INVALID) Py_RETURN_NONE;
    if (!status && !keep) Py_RETURN_TRUE;
    return PyLong_FromLong((long)status << 1 | keep);
}

struct question *fast_renew(PyObject *requests, PyObject *key, Py_ssize_t holders) {
    PyObject *found = PyDict_GetItemWithError(requests, key);
    if (!found || Py_REFCNT(found) > holders) return NULL;
    struct question *q = (struct question *)found;
    q->open = 1;
    Py_INCREF(found);
    if (q->copy && q->ready) PyDict_Clear(q->ready);
    const shmb_message *m = q->texts ? core.shmb_host_message(q->host, q->key) : NULL;
    if (!m || m->placed == q->placed) return q;
    PyObject *done = PyObject_CallMethod(found, "_place_anew", NULL);
    if (!done) Py_CLEAR(found);
    Py_XDECREF(done);
    return (struct question *)found;
}

/* renewed(requests, key, holders) -> requests[key] for its next message, or None where somebody
 * besides so many holders has it. */
PyObject *fast_renewed(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "expected requests, a key and a number");
    Py_ssize_t holders = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) return NULL;
    PyObject *found = (PyObject *)fast_renew(args[0], args[1], holders);
    if (found || PyErr_Occurred()) return found;
    Py_RETURN_NONE;
}

/* text(question, index): the string that tensors[index] is, or None where it is gone. */
PyObject *fast_text(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyObject_TypeCheck(args[0], fast_question_type))
        return PyErr_Format(PyExc_TypeError, "expected a question and an index");
    struct question *q = (struct question *)args[0];
    long long index = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    char own[1024], *text = own;
    int64_t bytes = core.shmb_host_values(q->host, q->key, index, own, sizeof own);
    if (bytes > (int64_t)sizeof own) {
        text = malloc((size_t)bytes);
        if (!text) return PyErr_NoMemory();
        bytes = core.shmb_host_values(q->host, q->key, index, text, bytes);
    }
    /* bytes that are no UTF-8, as of file names, become surrogate escapes */
    PyObject *found = bytes < 0 ? NULL : PyUnicode_DecodeUTF8(text, bytes, "surrogateescape");
    if (text != own) free(text);
    if (found || PyErr_Occurred()) return found;
    Py_RETURN_NONE;
}

/* A copy of the tensor, for the features of this request alone; NULL without an error: there is no
 * view of it yet. */
static PyObject *copy_tensor(struct question *q, PyObject *name) {
    PyObject *view = q->copy && q->roots ? PyDict_GetItemWithError(q->roots, name) : NULL;
    PyObject *copy = view ? PyObject_CallMethodObjArgs(view, copy_name, NULL) : NULL;
    if (copy && q->open && PyDict_SetItem(q->ready, name, copy) == 0) return copy;
    Py_XDECREF(copy);
    return NULL;
}

static PyObject *question_item(PyObject *self, PyObject *name) {
    struct question *q = (struct question *)self;
    if (q->open && q->ready) {
        PyObject *array = PyDict_GetItemWithError(q->ready, name);
        Py_XINCREF(array);
        if (!array && !PyErr_Occurred()) array = copy_tensor(q, name);
        if (array || PyErr_Occurred()) return array;
    }
    return PyObject_CallMethod(self, "_make", "(O)", name);
}

static PyObject *question_held(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(fast_question_held((struct question *)self));
}

#define OBJECTS(X) X(flat) X(roots) X(ready) X(form)
FAST_COLLECTS(question, OBJECTS)

static PyMemberDef members[] = {
    {"_address", T_ULONGLONG, offsetof(struct question, host), 0, NULL},
    {"_key", T_LONGLONG, offsetof(struct question, key), 0, NULL},
    {"_flat", T_OBJECT_EX, offsetof(struct question, flat), 0, NULL},
    {"_roots", T_OBJECT_EX, offsetof(struct question, roots), 0, NULL},
    {"_ready", T_OBJECT_EX, offsetof(struct question, ready), 0, NULL},
    {"_layout", T_OBJECT, offsetof(struct question, form), 0, NULL},
    {"_placed", T_ULONGLONG, offsetof(struct question, placed), 0, NULL},
    {"_texts", T_BOOL, offsetof(struct question, texts), 0, NULL},
    {"_lists", T_BOOL, offsetof(struct question, lists), 0, NULL},
    {"_open", T_BOOL, offsetof(struct question, open), 0, NULL},
    {"_copy", T_BOOL, offsetof(struct question, copy), 0, NULL},
    {"_direct", T_BOOL, offsetof(struct question, direct), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {{"_held", question_held, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)fast_dealloc},
                              FAST_COLLECTED(question),
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {Py_mp_subscript, (void *)question_item},
                              {0, NULL}};
static PyType_Spec spec = {"shmbridge._fastpath.Question", sizeof(struct question), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

int fast_add_question(PyObject *module) {
    copy_name = PyUnicode_InternFromString("copy");
    return copy_name ? fast_add_class(module, &spec, &fast_question_type) : -1;
}
