#include "fastpath.h"

enum {
    WAKE_UP_NS = 20 * 1000, /* of a runner: for a faster model no batch waits */
    TURNS_PER_LOOK = 16     /* at what takes a tenth of a request or more: the clock, and whether
                               runners have several questions */
};

/* What a Batch is below, and what its loop knows from one batch to the next. Times in ns. */
struct questions {
    PyObject_HEAD PyObject *list;
    PyObject *arrays; /* that were read, by name */
    PyObject *made;   /* (array, index) by name and size, of batches with the layout `form` */
    PyObject *form;
    long long wait;    /* for more requests after the first */
    long long longest; /* that it may be, where it follows the model; 0: it does not */
    long long until;   /* when the wait ends; 0: it has not begun */
    long long given;   /* when the model got the batch; 0: nobody measures */
    unsigned turns;
    char several; /* runners have several questions at once */
    char lists;   /* the questions hold lists */
};
static PyTypeObject *questions_type;

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
    for (; at; at--) {
        const struct question *before = question_at(b->list, at - 1);
        if (!before || before->form != q->form) return false;
        if ((before->key & SHMB_KEY_PLACE) < (q->key & SHMB_KEY_PLACE)) break;
    }
    b->lists = q->lists;
    return PyList_Insert(b->list, at, (PyObject *)q) == 0;
}

static bool samples(const struct questions *b) { return b->turns % TURNS_PER_LOOK == 0; }

/* The batch that [batch] holds; NULL with the exception set. */
static struct questions *batch_in(PyObject *held) {
    PyObject *batch = PyList_Check(held) ? PyList_GetItem(held, 0) : NULL;
    if (batch && PyObject_TypeCheck(batch, questions_type)) return (struct questions *)batch;
    PyErr_SetString(PyExc_TypeError, "expected a list of a batch");
    return NULL;
}

/* One more: its key; -SHMB_TIMEOUT: the batch waits no longer; or another -shmb_status, also after
 * a slice, so that Python can ask after signals. */
static int64_t receive_more(shmb_host *host, struct questions *b) {
    int64_t key = core.shmb_host_take(host, b->several || samples(b));
    if (key != -SHMB_TIMEOUT || !b->wait ||
        core.shmb_host_waiting(host) >= core.shmb_host_attached(host))
        return key;
    int64_t now = fast_now_ns();
    if (!b->until) b->until = now + b->wait;
    if (now >= b->until) return key;
    key = fast_wait(host, b->until - now);
    return key == -SHMB_TIMEOUT ? -SHMB_INTERRUPTED : key;
}

/* The wait for more must not take longer than another call of the model. */
static void note_model(struct questions *b) {
    if (!b->given) return;
    int64_t took = fast_now_ns() - b->given;
    b->wait = took < WAKE_UP_NS ? 0 : took < b->longest ? took : b->longest;
    b->given = 0;
}

/* Lists go with their runner, which may have left or died meanwhile. */
static int drop_unreadable(PyObject *list) {
    for (Py_ssize_t i = PyList_Size(list); i--;) {
        const struct question *q = question_at(list, i);
        if (!q || (!core.shmb_host_message(q->host, q->key) && PySequence_DelItem(list, i)))
            return -1;
    }
    return 0;
}

/* collect([batch], host, requests, most) -> None: the batch has so many requests, or waits for no
 * more. Else a key, or -shmb_status: Python is to look at it. */
PyObject *fast_collect(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4 || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a list, a host, a dict and a number");
    struct questions *b = batch_in(args[0]);
    shmb_host *host = PyLong_AsVoidPtr(args[1]);
    Py_ssize_t most = PyLong_AsSsize_t(args[3]), have;
    if (PyErr_Occurred()) return NULL;
    while ((have = PyList_Size(b->list)) < most) {
        int64_t came = have ? receive_more(host, b) : fast_receive(host, INT64_MAX);
        if (have && came == -SHMB_TIMEOUT) break;
        PyObject *key = PyLong_FromLongLong(came);
        struct question *q = key ? fast_renew(args[2], key, 1) : NULL;
        bool added = q && add(b, q);
        Py_XDECREF((PyObject *)q);
        if (!added && !PyErr_Occurred()) return key;
        Py_XDECREF(key);
        if (!added) return NULL;
    }
    if (b->lists && drop_unreadable(b->list)) return NULL;
    b->until = 0;
    if (PyList_Size(b->list) == 0) return PyLong_FromLong(-SHMB_INTERRUPTED);
    if (b->longest && samples(b)) b->given = fast_now_ns();
    Py_RETURN_NONE;
}

/* Are two of one runner? The questions are in the order of channels. */
static bool several_of_one(PyObject *list) {
    for (Py_ssize_t i = 1; i < PyList_Size(list); i++) {
        const struct question *a = question_at(list, i - 1), *b = question_at(list, i);
        if (a && b && ((a->key ^ b->key) & SHMB_KEY_PLACE) >> SHMB_KEY_SLOT_BITS == 0) return true;
    }
    return false;
}

static bool drop_open(PyObject *list) {
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        struct question *q = question_at(list, i);
        PyObject *done = Py_None;
        if (q && q->open) {
            Py_INCREF((PyObject *)q);
            done = PyObject_CallMethod((PyObject *)q, "_drop", NULL);
            Py_DECREF((PyObject *)q);
            Py_XDECREF(done);
        }
        if (!q || !done) return false;
    }
    return true;
}

/* Another batch, where somebody besides the list and the caller's loop variable has this one. */
static bool replace_held(PyObject *held, struct questions *b) {
    struct questions *next =
        (struct questions *)PyObject_CallNoArgs((PyObject *)Py_TYPE((PyObject *)b));
    if (!next) return false;
    next->wait = b->wait;
    next->longest = b->longest;
    next->turns = b->turns;
    next->several = b->several;
    return PyList_SetItem(held, 0, (PyObject *)next) == 0;
}

/* end_turn([batch]): answers what has no reply with an error. The requests may be used again. */
PyObject *fast_end_turn(PyObject *module, PyObject *held) {
    (void)module;
    struct questions *b = batch_in(held);
    if (!b || !drop_open(b->list)) return NULL;
    note_model(b);
    if (samples(b)) b->several = several_of_one(b->list);
    b->turns++;
    PyDict_Clear(b->arrays);
    if (Py_REFCNT(b->list) == 1) {
        if (PyList_SetSlice(b->list, 0, PyList_Size(b->list), NULL)) return NULL;
    } else { /* somebody keeps the requests */
        PyObject *kept = b->list;
        b->list = PyList_New(0);
        Py_DECREF(kept);
    }
    if (!b->list || (Py_REFCNT((PyObject *)b) > 2 && !replace_held(held, b))) return NULL;
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
              core.shmb_host_values(q->host, q->key, index, (char *)out.buf + i * bytes, bytes) ==
                  bytes;
    }
    PyBuffer_Release(&out);
    return all;
}

/* gather(questions, index, out) -> bool */
PyObject *fast_gather(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a list, an index and an array");
    long long index = PyLong_AsLongLong(args[1]);
    bool all = !PyErr_Occurred() && gather(args[0], index, args[2]);
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
    out->data =
        (const char *)out->data + (size_t)(i * out->size) * core.shmb_dtype_size(out->dtype);
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

/* The reply to one question. As fast_reply's: NULL where it was sent, a new reference. */
static PyObject *reply_row(struct question *q, const PyObject *type, const struct column *columns,
                           int64_t n, Py_ssize_t i) {
    struct value values[FAST_FIELDS];
    shmb_tensor fields[FAST_FIELDS];
    shmb_status status = SHMB_INVALID;
    bool keep = false, known = q->open && q->direct && (PyObject *)Py_TYPE((PyObject *)q) == type;
    int64_t made = 0;
    while (known && made < n) {
        known = row_of(&columns[made], i, &values[made], &fields[made]);
        if (known) made++;
    }
    if (known) status = fast_question_reply(q, fields, n, &keep);
    fast_release_values(values, made);
    if (!status && !keep) return NULL;
    if (status != SHMB_INVALID) return PyLong_FromLong((long)status << 1 | keep);
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

/* reply_rows(batch, type, advice, named) -> reply_each's; None: nothing was done, as the advice is
 * not arrays and lists with a row for each question. A question of another type replies in its own
 * way. advice: None where there is none. */
PyObject *fast_reply_rows(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4 || !PyObject_TypeCheck(args[0], questions_type) || !PyDict_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "expected a batch, a type, a value and a dict");
    struct questions *b = (struct questions *)args[0];
    note_model(b);
    PyDict_Clear(b->arrays); /* or they would hold every slot */
    struct column columns[FAST_FIELDS];
    int64_t n = 0;
    Py_ssize_t rows = PyList_Size(b->list);
    PyObject *left = Py_None, *advice = args[2];
    bool by_name = PyDict_CheckExact(advice) && !PyDict_Size(args[3]);
    /* a value's own code may change the caller's dict */
    PyObject *named = by_name ? PyDict_Copy(advice) : Py_NewRef(args[3]);
    if (!named) return NULL;
    if (columns_of(by_name ? Py_None : advice, named, rows, columns, &n))
        left = reply_each(b->list, rows, args[1], columns, n);
    else Py_INCREF(left);
    for (int64_t i = 0; i < n; i++) fast_release_values(&columns[i].rows, 1);
    Py_DECREF(named);
    return left;
}

/* Has nobody but a tuple the array? Without a GIL the count does not tell. */
static bool unused(PyObject *array) {
#ifdef Py_GIL_DISABLED
    return false;
#else
    return Py_REFCNT(array) == 1;
#endif
}

/* The array of that name, made like that of an earlier batch, or that itself where nobody has it;
 * NULL: there was none, or the exception is set. */
static PyObject *gather_like(struct questions *b, PyObject *name) {
    struct question *first = PyList_Size(b->list) > 0 ? question_at(b->list, 0) : NULL;
    if (!first) return NULL;
    if (first->form != b->form) {
        PyDict_Clear(b->made);
        Py_XDECREF(b->form);
        b->form = Py_NewRef(first->form);
    }
    PyObject *size = PyLong_FromSsize_t(PyList_Size(b->list));
    PyObject *key = size ? PyTuple_Pack(2, name, size) : NULL;
    PyObject *made = key ? PyDict_GetItemWithError(b->made, key) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(size);
    PyObject *array = made ? PyTuple_GetItem(made, 0) : NULL;
    if (!array) return NULL;
    long long index = PyLong_AsLongLong(PyTuple_GetItem(made, 1));
    array = unused(array) ? Py_NewRef(array) : PyObject_CallMethod(array, "copy", NULL);
    if (array && gather(b->list, index, array) && !PyDict_SetItem(b->arrays, name, array))
        return array;
    Py_XDECREF(array);
    return NULL;
}

static PyObject *questions_item(PyObject *self, PyObject *name) {
    struct questions *b = (struct questions *)self;
    PyObject *array = PyDict_GetItemWithError(b->arrays, name);
    Py_XINCREF(array);
    if (!array && !PyErr_Occurred()) array = gather_like(b, name);
    if (array || PyErr_Occurred()) return array;
    return PyObject_CallMethod(self, "_make", "(O)", name);
}

static Py_ssize_t questions_length(PyObject *self) {
    return PyList_Size(((struct questions *)self)->list);
}

/* _add(request) -> bool: puts it into the batch; False: it has another layout. */
static PyObject *questions_add(PyObject *self, PyObject *request) {
    if (!PyObject_TypeCheck(request, fast_question_type))
        return PyErr_Format(PyExc_TypeError, "expected a question");
    bool added = add((struct questions *)self, (struct question *)request);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(added);
}

static PyObject *questions_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args;
    (void)named;
    struct questions *b = (struct questions *)PyType_GenericAlloc(type, 0);
    if (!b) return NULL;
    b->list = PyList_New(0);
    b->arrays = PyDict_New();
    b->made = PyDict_New();
    if (!b->list || !b->arrays || !b->made) Py_CLEAR(b);
    return (PyObject *)b;
}

#define OBJECTS(X) X(list) X(arrays) X(made) X(form)
FAST_COLLECTS(questions, OBJECTS)

static PyMemberDef members[] = {
    {"requests", T_OBJECT_EX, offsetof(struct questions, list), READONLY, NULL},
    {"_arrays", T_OBJECT_EX, offsetof(struct questions, arrays), READONLY, NULL},
    {"_made", T_OBJECT_EX, offsetof(struct questions, made), READONLY, NULL},
    {"_wait", T_LONGLONG, offsetof(struct questions, wait), 0, NULL},
    {"_longest", T_LONGLONG, offsetof(struct questions, longest), 0, NULL},
    {"_until", T_LONGLONG, offsetof(struct questions, until), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {{"_add", questions_add, METH_O, NULL}, {NULL, NULL, 0, NULL}};
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

int fast_add_questions(PyObject *module) { return fast_add_class(module, &spec, &questions_type); }
