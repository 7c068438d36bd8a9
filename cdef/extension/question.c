#include <stdlib.h>

#include "fastpath.h"

enum { TURNS_PER_LOOK = 64 };

PyTypeObject *fast_question_type;
static PyTypeObject *layout_type;
static PyObject *copy_name;

/* True where the method was called without an exception. */
static bool call(PyObject *object, const char *method) {
    return fast_done(PyObject_CallMethod(object, method, NULL));
}

/* Has anyone else an array over the slot? */
static bool layout_held(const struct layout *l) {
    PyObject *key, *array;
    for (Py_ssize_t at = 0; !l->copy && PyDict_Next(l->roots, &at, &key, &array);)
        if (!fast_unique(array)) return true;
    return false;
}

shmb_status fast_question_reply(struct question *q, const shmb_tensor *fields, int64_t count) {
    const struct layout *l = q->layout;
    size_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (size_t)fields[i].size * shmb_dtype_size(fields[i].dtype);
    bool keep;
    FAST_LOCKED(q)
    q->open = 0; /* first: from here on no thread takes a new view */
    keep = layout_held(l);
    FAST_UNLOCKED
    shmb_status status;
    if (bytes < FAST_LONG_COPY) {
        status = shmb_host_reply(l->host, l->key, keep, fields, count);
    } else {
        Py_BEGIN_ALLOW_THREADS status = shmb_host_reply(l->host, l->key, keep, fields, count);
        Py_END_ALLOW_THREADS
    }
    if (status == SHMB_INVALID) q->open = 1;
    else if (keep && !call((PyObject *)l, "_leave")) PyErr_Clear();
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
 * be gone; else the status. advice: Ellipsis where there is none. */
static PyObject *fast_reply(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3 || !PyObject_TypeCheck(args[0], fast_question_type) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a question, a value and a dict");
    struct question *q = (struct question *)args[0];
    struct value values[FAST_FIELDS];
    shmb_tensor fields[FAST_FIELDS];
    int64_t n = 0;
    shmb_status status = SHMB_INVALID;
    PyObject *advice = args[1] == Py_Ellipsis ? NULL : args[1];
    if (q->open && q->layout->direct && fields_of(advice, args[2], values, fields, &n))
        status = fast_question_reply(q, fields, n);
    fast_release_values(values, n);
    if (status == SHMB_INVALID) Py_RETURN_NONE;
    if (!status) Py_RETURN_TRUE;
    return PyLong_FromLong((long)status);
}

/* Readies it for the next message. */
static bool renew(struct layout *l) {
    if (!l->slot && !call((PyObject *)l, "_enter")) return false;
    if (l->copy) PyDict_Clear(l->ready);
    const shmb_message *m = l->texts ? shmb_host_message(l->host, l->key) : NULL;
    return !m || m->placed == l->placed || call((PyObject *)l, "_place_anew");
}

static struct question *new_question(struct layout *l) {
    static const char why[] = "the host is out of memory"; /* its runner is not to wait for it */
    struct question *q = renew(l) ? (struct question *)PyType_GenericAlloc(l->type, 0) : NULL;
    if (!q) {
        shmb_host_reply_error(l->host, l->key, false, SHMB_NO_MEMORY, why, sizeof why - 1);
        return NULL;
    }
    Py_INCREF((PyObject *)l);
    q->layout = l;
    q->open = 1;
    l->made++;
    return q;
}

struct question *fast_question_of(PyObject *layouts, PyObject *key) {
    PyObject *found = PyDict_GetItemWithError(layouts, key);
    return found ? new_question((struct layout *)found) : NULL;
}

/* request(layouts, key) -> a new request of layouts[key], or None where that is not known. */
static PyObject *fast_request(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyDict_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a dict and a key");
    PyObject *found = (PyObject *)fast_question_of(args[0], args[1]);
    if (found || PyErr_Occurred()) return found;
    Py_RETURN_NONE;
}

/* An iterator over requests, which are the caller's alone: first those of the list `came`. It ends
 * at a `key` whose layout is not known, or which is -shmb_status, and can go on. receive: called
 * with the timeout in place of fast_receive, or None. */
struct requests {
    PyObject_HEAD PyObject *came, *receive, *layouts;
    shmb_host *host;
    long long timeout_ns, key;
    unsigned turns; /* from time to time Python is to look around */
    char asked;     /* set by each request */
};

static PyObject *requests_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    struct requests *r = (struct requests *)PyType_GenericAlloc(type, 0);
    (void)named;
    if (!r) return NULL;
    bool parsed = PyArg_ParseTuple(args, "O!KOO!L", &PyList_Type, &r->came, &r->host, &r->receive,
                                   &PyDict_Type, &r->layouts, &r->timeout_ns);
    Py_XINCREF(r->came);
    Py_XINCREF(r->receive);
    Py_XINCREF(r->layouts);
    if (!parsed) Py_CLEAR(r);
    return (PyObject *)r;
}

static PyObject *requests_next(PyObject *self) {
    struct requests *r = (struct requests *)self;
    PyObject *key, *request = NULL;
    r->key = -SHMB_INTERRUPTED;
    if (PyList_Size(r->came)) {
        request = PyObject_CallMethod(r->came, "pop", "i", 0);
    } else if (++r->turns % TURNS_PER_LOOK) {
        key = r->receive == Py_None ? PyLong_FromLongLong(fast_receive(r->host, r->timeout_ns))
                                    : PyObject_CallFunction(r->receive, "L", r->timeout_ns);
        request = key ? (PyObject *)fast_question_of(r->layouts, key) : NULL;
        if (key && !request) r->key = PyLong_AsLongLong(key);
        Py_XDECREF(key);
    }
    r->asked |= request != NULL;
    return request;
}

/* text(question, index): the string that tensors[index] is, or None where it is gone. */
static PyObject *fast_text(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyObject_TypeCheck(args[0], fast_question_type))
        return PyErr_Format(PyExc_TypeError, "expected a question and an index");
    const struct layout *l = ((struct question *)args[0])->layout;
    long long index = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    char own[1024], *text = own;
    int64_t bytes = shmb_host_values(l->host, l->key, index, own, sizeof own);
    if (bytes > (int64_t)sizeof own) {
        text = malloc((size_t)bytes);
        if (!text) return PyErr_NoMemory();
        bytes = shmb_host_values(l->host, l->key, index, text, bytes);
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
    const struct layout *l = q->layout;
    PyObject *view = l->copy ? PyDict_GetItemWithError(l->roots, name) : NULL;
    PyObject *copy = view ? PyObject_CallMethodObjArgs(view, copy_name, NULL) : NULL;
    if (copy && q->open && PyDict_SetItem(l->ready, name, copy) == 0) return copy;
    Py_XDECREF(copy);
    return NULL;
}

static PyObject *question_item(PyObject *self, PyObject *name) {
    struct question *q = (struct question *)self;
    if (q->open && q->layout) {
        PyObject *array;
        FAST_LOCKED(q)
        array = q->open ? PyDict_GetItemWithError(q->layout->ready, name) : NULL;
        Py_XINCREF(array);
        FAST_UNLOCKED
        if (!array && !PyErr_Occurred()) array = copy_tensor(q, name);
        if (array || PyErr_Occurred()) return array;
    }
    return PyObject_CallMethod(self, "_make", "(O)", name);
}

/* Whoever had the last reference to a request that has no reply has dropped it. */
static void question_finalize(PyObject *self) {
    PyObject *type, *error, *trace;
    if (!((struct question *)self)->open) return;
    ((struct question *)self)->open = 0;
    PyErr_Fetch(&type, &error, &trace);
    if (!call(self, "_drop")) PyErr_WriteUnraisable(self);
    PyErr_Restore(type, error, trace);
}

#define QUESTION_OBJECTS(X) X(layout)
FAST_COLLECTS(question, QUESTION_OBJECTS)
static PyMemberDef question_members[] = {
    {"_layout", T_OBJECT_EX, offsetof(struct question, layout), READONLY, NULL},
    {"_open", T_BOOL, offsetof(struct question, open), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot question_slots[] = {{Py_tp_dealloc, (void *)fast_dealloc},
                                       {Py_tp_finalize, (void *)question_finalize},
                                       FAST_COLLECTED(question),
                                       {Py_tp_members, question_members},
                                       {Py_mp_subscript, (void *)question_item},
                                       {0, NULL}};
static PyType_Spec question_spec = {"shmbridge._fastpath.Question", sizeof(struct question), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                    question_slots};

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args;
    (void)named;
    struct layout *l = (struct layout *)PyType_GenericAlloc(type, 0);
    if (!l) return NULL;
    l->roots = PyDict_New();
    l->ready = PyDict_New();
    if (!l->roots || !l->ready) Py_CLEAR(l);
    return (PyObject *)l;
}

static PyObject *layout_is_held(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(layout_held((struct layout *)self));
}

#define LAYOUT_OBJECTS(X) X(type) X(slot) X(roots) X(ready) X(form)
FAST_COLLECTS(layout, LAYOUT_OBJECTS)
static PyMemberDef layout_members[] = {
    {"_address", T_ULONGLONG, offsetof(struct layout, host), 0, NULL},
    {"key", T_LONGLONG, offsetof(struct layout, key), 0, NULL},
    {"_type", T_OBJECT, offsetof(struct layout, type), 0, NULL},
    {"_slot", T_OBJECT, offsetof(struct layout, slot), 0, NULL},
    {"_roots", T_OBJECT_EX, offsetof(struct layout, roots), 0, NULL},
    {"_ready", T_OBJECT_EX, offsetof(struct layout, ready), 0, NULL},
    {"_form", T_OBJECT, offsetof(struct layout, form), 0, NULL},
    {"_placed", T_ULONGLONG, offsetof(struct layout, placed), 0, NULL},
    {"made", T_ULONGLONG, offsetof(struct layout, made), READONLY, NULL},
    {"texts", T_BOOL, offsetof(struct layout, texts), 0, NULL},
    {"lists", T_BOOL, offsetof(struct layout, lists), 0, NULL},
    {"copy", T_BOOL, offsetof(struct layout, copy), 0, NULL},
    {"direct", T_BOOL, offsetof(struct layout, direct), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef layout_methods[] = {{"held", layout_is_held, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot layout_slots[] = {
    {Py_tp_new, (void *)layout_new}, {Py_tp_dealloc, (void *)fast_dealloc}, FAST_COLLECTED(layout),
    {Py_tp_members, layout_members}, {Py_tp_methods, layout_methods},       {0, NULL}};
static PyType_Spec layout_spec = {"shmbridge._fastpath.Layout", sizeof(struct layout), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                  layout_slots};

#define REQUESTS_OBJECTS(X) X(came) X(receive) X(layouts)
FAST_COLLECTS(requests, REQUESTS_OBJECTS)
static PyMemberDef requests_members[] = {
    {"key", T_LONGLONG, offsetof(struct requests, key), READONLY, NULL},
    {"asked", T_BOOL, offsetof(struct requests, asked), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot requests_slots[] = {{Py_tp_new, (void *)requests_new},
                                       {Py_tp_dealloc, (void *)fast_dealloc},
                                       FAST_COLLECTED(requests),
                                       {Py_tp_members, requests_members},
                                       {Py_tp_iter, (void *)PyObject_SelfIter},
                                       {Py_tp_iternext, (void *)requests_next},
                                       {0, NULL}};
static PyType_Spec requests_spec = {"shmbridge._fastpath.Requests", sizeof(struct requests), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, requests_slots};

static PyMethodDef functions[] = {FAST_METHOD("reply", fast_reply),
                                  FAST_METHOD("request", fast_request),
                                  FAST_METHOD("text", fast_text),
                                  {NULL, NULL, 0, NULL}};
int fast_add_question(PyObject *module) {
    copy_name = PyUnicode_InternFromString("copy");
    return !copy_name || PyModule_AddFunctions(module, functions) ||
           fast_add_class(module, &layout_spec, &layout_type) ||
           fast_add_class(module, &requests_spec, NULL) ||
           fast_add_class(module, &question_spec, &fast_question_type);
}
