#include "fastpath.h"

/* What a Batch is below. */
struct questions {
    PyObject_HEAD PyObject *list;
    PyObject *arrays; /* that were read, by name */
    int64_t until;    /* when the wait for more ends; 0: it has not begun */
};

/* A list of questions; NULL with the exception set. */
static struct question *question_at(PyObject *list, Py_ssize_t i) {
    PyObject *object = PyList_GetItem(list, i);
    if (object && PyObject_TypeCheck(object, fast_question_type)) return (struct question *)object;
    PyErr_SetString(PyExc_TypeError, "expected a list of questions");
    return NULL;
}

/* Puts it where it belongs by its place in the segment. False: it has another layout than the
 * others, or an error is set. */
static bool add(struct questions *b, struct question *q) {
    Py_ssize_t at = PyList_Size(b->list);
    int64_t place = q->layout->key & SHMB_KEY_PLACE;
    for (; at; at--) {
        const struct question *before = question_at(b->list, at - 1);
        if (!before || before->layout->form != q->layout->form) return false;
        if ((before->layout->key & SHMB_KEY_PLACE) < place) break;
    }
    return PyList_Insert(b->list, at, (PyObject *)q) == 0;
}

/* Moves the requests that fit from the list to the batch; false with the exception set. */
static bool add_those_that_fit(struct questions *b, PyObject *came, Py_ssize_t most) {
    for (Py_ssize_t i = 0; i < PyList_Size(came) && PyList_Size(b->list) < most;) {
        struct question *q = question_at(came, i);
        if (q && add(b, q)) PySequence_DelItem(came, i);
        else i++;
        if (PyErr_Occurred()) return false;
    }
    return true;
}

struct source {
    shmb_host *host;
    PyObject *receive;
    int attached; /* runners; -1: as the core says */
};

/* A key or -shmb_status. NULL with the exception set. */
static PyObject *receive_from(const struct source *s, int64_t timeout) {
    if (s->receive == Py_None)
        return PyLong_FromLongLong(timeout ? fast_receive(s->host, timeout)
                                           : shmb_host_take(s->host));
    return PyObject_CallFunction(s->receive, "L", (long long)timeout);
}

/* How long a batch of some requests may wait for one more, in ns. */
static int64_t time_left(struct questions *b, const struct source *s, int64_t wait) {
    int attached = s->attached < 0 ? shmb_host_attached(s->host) : s->attached;
    if (!wait || shmb_host_waiting(s->host) >= attached) return 0;
    int64_t now = shmb_clock_ns();
    if (!b->until) b->until = now + wait;
    return b->until > now ? b->until - now : 0;
}

/* The next request's key: at once, or within the time that is left. None: the batch is complete. */
static PyObject *receive_more(struct questions *b, const struct source *s, int64_t wait) {
    PyObject *key = receive_from(s, 0);
    if (!key || PyLong_AsLongLong(key) != -SHMB_TIMEOUT) return key;
    int64_t left = time_left(b, s, wait);
    Py_DECREF(key);
    if (!left) return Py_NewRef(Py_None);
    key = receive_from(s, left);
    if (!key || PyLong_AsLongLong(key) != -SHMB_TIMEOUT) return key;
    Py_DECREF(key);
    return PyLong_FromLong(-SHMB_INTERRUPTED); /* Python is to ask after signals */
}

/* Lists go with their runner, which may have left or died meanwhile. */
static bool drop_unreadable(PyObject *list) {
    for (Py_ssize_t i = PyList_Size(list); i--;) {
        const struct question *q = question_at(list, i);
        const struct layout *l = q ? q->layout : NULL;
        if (!l || (l->lists && !shmb_host_message(l->host, l->key) && PySequence_DelItem(list, i)))
            return false;
    }
    return true;
}

/* _collect(came, host, receive, layouts, most, wait, attached) -> None: the batch has so many
 * requests, or waits for no more. Else a key, or -shmb_status. came: requests that may fit the
 * batch; those that do not are added. */
static PyObject *questions_collect(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    struct questions *b = (struct questions *)self;
    if (count != 7 || !PyList_Check(args[0]) || !PyDict_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "expected a list, a source and its limits");
    struct source s = {PyLong_AsVoidPtr(args[1]), args[2], (int)PyLong_AsLong(args[6])};
    Py_ssize_t most = PyLong_AsSsize_t(args[4]);
    int64_t wait = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    while (add_those_that_fit(b, args[0], most) && PyList_Size(b->list) < most) {
        PyObject *key =
            PyList_Size(b->list) ? receive_more(b, &s, wait) : receive_from(&s, INT64_MAX);
        if (key == Py_None) break;
        struct question *q = key ? fast_question_of(args[3], key) : NULL;
        if (!q && !PyErr_Occurred()) return key;
        Py_XDECREF(key);
        bool known = q && !PyList_Append(args[0], (PyObject *)q);
        Py_XDECREF((PyObject *)q);
        if (!known) return NULL;
    }
    if (PyErr_Occurred() || !drop_unreadable(b->list)) return NULL;
    Py_RETURN_NONE;
}

/* Copies the tensor of that index of each question into a row of the array. False: one of them is
 * answered, or has another size; or the exception is set. */
static bool gather(PyObject *list, long long index, PyObject *array) {
    Py_buffer out;
    if (PyObject_GetBuffer(array, &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) return false;
    Py_ssize_t rows = PyList_Size(list);
    int64_t bytes = rows > 0 ? out.len / rows : 0;
    bool all = true;
    for (Py_ssize_t i = 0; all && i < rows; i++) {
        const struct question *q = question_at(list, i);
        all = q && q->open &&
              shmb_host_values(q->layout->host, q->layout->key, index, (char *)out.buf + i * bytes,
                               bytes) == bytes;
    }
    PyBuffer_Release(&out);
    return all;
}

/* _gather(index, out) -> bool */
static PyObject *questions_gather(PyObject *self, PyObject *args) {
    Py_ssize_t index;
    PyObject *out;
    if (!PyArg_ParseTuple(args, "nO", &index, &out)) return NULL;
    bool all = gather(((struct questions *)self)->list, index, out);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(all);
}

/* A column of advice: an array, whose rows are tensors of one rank less, or a list. */
struct column {
    const char *name;
    PyObject *list;    /* or NULL */
    struct value rows; /* of the array */
};

/* Row i of a column as a tensor; false: it goes the long way. */
static bool row_of(const struct column *c, Py_ssize_t i, struct value *own, shmb_tensor *out) {
    own->buffer.obj = NULL;
    if (c->list) {
        PyObject *item = PySequence_GetItem(c->list, i);
        bool known = item && fast_value(item, own);
        Py_XDECREF(item); /* own holds what it points to */
        if (!item) PyErr_Clear();
        *out = own->tensor;
        out->name = c->name;
        return known;
    }
    *out = c->rows.tensor;
    out->name = c->name;
    out->dims++;
    out->rank--;
    out->size /= c->rows.dims[0];
    out->data = (const char *)out->data + (size_t)(i * out->size) * shmb_dtype_size(out->dtype);
    return true;
}

static bool column_of(const char *name, PyObject *values, Py_ssize_t rows, struct column *out) {
    out->rows.buffer.obj = NULL;
    out->list = PyList_CheckExact(values) || PyTuple_CheckExact(values) ? values : NULL;
    out->name = name;
    if (!name) return false;
    if (out->list) return PySequence_Size(values) == rows;
    return fast_value(values, &out->rows) && out->rows.tensor.rank && out->rows.dims[0] == rows;
}

/* Those that reply(advice, **named) was given; false: not all are arrays or lists with so many
 * rows. */
static bool columns_of(PyObject *advice, PyObject *named, Py_ssize_t rows, struct column *out,
                       int64_t *count) {
    PyObject *name, *values;
    *count = 0;
    if (PyDict_Size(named) >= FAST_FIELDS) return false;
    if (advice != Py_None && !column_of("advice", advice, rows, &out[(*count)++])) return false;
    for (Py_ssize_t at = 0; PyDict_Next(named, &at, &name, &values);)
        if (!column_of(fast_name(name), values, rows, &out[(*count)++])) return false;
    return *count;
}

/* The reply to one question: NULL where it was sent, its status, or None where nothing was done. */
static PyObject *reply_row(struct question *q, const PyObject *type, const struct column *columns,
                           int64_t n, Py_ssize_t i) {
    struct value values[FAST_FIELDS];
    shmb_tensor fields[FAST_FIELDS];
    shmb_status status = SHMB_INVALID;
    bool known = q->open && q->layout->direct && (PyObject *)Py_TYPE((PyObject *)q) == type;
    int64_t made = 0;
    while (known && made < n) {
        known = row_of(&columns[made], i, &values[made], &fields[made]);
        if (known) made++;
    }
    if (known) status = fast_question_reply(q, fields, n);
    fast_release_values(values, made);
    if (!status) return NULL;
    if (status != SHMB_INVALID) return PyLong_FromLong((long)status);
    Py_INCREF(Py_None);
    return Py_None;
}

/* True: all were sent; else what reply gave for the others, a list of (index, outcome). */
static PyObject *reply_each(PyObject *list, Py_ssize_t rows, const PyObject *type,
                            const struct column *columns, int64_t n) {
    PyObject *left = NULL;
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < rows; i++) {
        struct question *q = question_at(list, i);
        Py_XINCREF((PyObject *)q); /* a value's own code may change the list */
        PyObject *outcome = q ? reply_row(q, type, columns, n, i) : NULL;
        Py_XDECREF((PyObject *)q);
        PyObject *pair = outcome ? Py_BuildValue("(nN)", i, outcome) : NULL;
        if (pair && !left) left = PyList_New(0);
        if (pair && left) PyList_Append(left, pair);
        Py_XDECREF(pair);
    }
    if (PyErr_Occurred()) Py_CLEAR(left);
    else if (!left) left = Py_NewRef(Py_True);
    return left;
}

/* _reply_rows(type, advice, named) -> reply_each's; None: nothing was done, as the advice is not
 * arrays and lists with a row for each question. A question of another type replies in its own way.
 * advice: None where there is none. */
static PyObject *questions_reply_rows(PyObject *self, PyObject *args) {
    struct questions *b = (struct questions *)self;
    PyObject *type, *advice, *others;
    if (!PyArg_ParseTuple(args, "OOO!", &type, &advice, &PyDict_Type, &others)) return NULL;
    struct column columns[FAST_FIELDS];
    int64_t n = 0;
    Py_ssize_t rows = PyList_Size(b->list);
    PyObject *left = Py_None;
    bool by_name = PyDict_CheckExact(advice) && !PyDict_Size(others);
    /* a value's own code may change the caller's dict */
    PyObject *named = by_name ? PyDict_Copy(advice) : Py_NewRef(others);
    if (!named) return NULL;
    if (columns_of(by_name ? Py_None : advice, named, rows, columns, &n))
        left = reply_each(b->list, rows, type, columns, n);
    else Py_INCREF(left);
    for (int64_t i = 0; i < n; i++) fast_release_values(&columns[i].rows, 1);
    Py_DECREF(named);
    return left;
}

static PyObject *questions_item(PyObject *self, PyObject *name) {
    PyObject *array = PyDict_GetItemWithError(((struct questions *)self)->arrays, name);
    if (array) return Py_NewRef(array);
    return PyErr_Occurred() ? NULL : PyObject_CallMethod(self, "_make", "(O)", name);
}

static Py_ssize_t questions_length(PyObject *self) {
    return PyList_Size(((struct questions *)self)->list);
}

static PyObject *questions_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args;
    (void)named;
    struct questions *b = (struct questions *)PyType_GenericAlloc(type, 0);
    if (!b) return NULL;
    b->list = PyList_New(0);
    b->arrays = PyDict_New();
    if (!b->list || !b->arrays) Py_CLEAR(b);
    return (PyObject *)b;
}

#define OBJECTS(X) X(list) X(arrays)
FAST_COLLECTS(questions, OBJECTS)

static PyMemberDef members[] = {
    {"requests", T_OBJECT_EX, offsetof(struct questions, list), READONLY, NULL},
    {"_arrays", T_OBJECT_EX, offsetof(struct questions, arrays), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {FAST_METHOD("_collect", questions_collect),
                                {"_gather", questions_gather, METH_VARARGS, NULL},
                                {"_reply_rows", questions_reply_rows, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, (void *)questions_new},
                              {Py_tp_dealloc, (void *)fast_dealloc},
                              FAST_COLLECTED(questions),
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {Py_mp_subscript, (void *)questions_item},
                              {Py_mp_length, (void *)questions_length},
                              {0, NULL}};
static PyType_Spec spec = {"shmbridge._fastpath.Questions", sizeof(struct questions), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

int fast_add_batch(PyObject *module) { return fast_add_class(module, &spec, NULL); }
