#include "fastpath.h"

/* A list of questions; NULL with the exception set. */
static struct question *question_at(PyObject *list, Py_ssize_t i) {
    PyObject *object = PyList_GetItem(list, i);
    if (object && PyObject_TypeCheck(object, fast_question_type)) return (struct question *)object;
    PyErr_SetString(PyExc_TypeError, "expected a list of questions");
    return NULL;
}

/* Puts it where it belongs by its place in the segment. */
static int insert(PyObject *list, struct question *q) {
    Py_ssize_t at = PyList_Size(list);
    for (; at; at--) {
        const struct question *before = question_at(list, at - 1);
        if (!before) return -1;
        if ((before->key & SHMB_KEY_PLACE) < (q->key & SHMB_KEY_PLACE)) break;
    }
    return PyList_Insert(list, at, (PyObject *)q);
}

/* collect(host, requests, alike, most) -> None: there are so many, or all runners have asked; else
 * a key, or -shmb_status: who came is not in `requests`, or not like the first. Looks for more
 * requests without sleeping, and puts those of the first's layout into the list, in order. */
PyObject *fast_collect(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4 || !PyDict_Check(args[1]) || !PyList_Check(args[2]) || !PyList_Size(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a host, a dict, a list and a number");
    shmb_host *host = PyLong_AsVoidPtr(args[0]);
    Py_ssize_t most = PyLong_AsSsize_t(args[3]);
    const struct question *first = question_at(args[2], 0);
    if (!first || PyErr_Occurred()) return NULL;
    const PyObject *form = first->form; /* the list holds it */
    while (PyList_Size(args[2]) < most &&
           core.shmb_host_waiting(host) < core.shmb_host_attached(host)) {
        PyObject *key = PyLong_FromLongLong(core.shmb_host_poll(host));
        PyObject *known = key ? PyDict_GetItemWithError(args[1], key) : NULL;
        bool alike = known && ((struct question *)known)->form == form;
        struct question *q = alike ? fast_renew(args[1], key, 1) : NULL;
        if (!q) return PyErr_Occurred() ? NULL : key;
        int failed = insert(args[2], q);
        Py_DECREF(q);
        Py_DECREF(key);
        if (failed) return NULL;
    }
    Py_RETURN_NONE;
}

/* gather(questions, index, out) -> bool: copies the tensor of that index of each into a row of the
 * array out. False where one of them is answered, or has another size. */
PyObject *fast_gather(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer out;
    if (count != 3 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a list, an index and an array");
    Py_ssize_t rows = PyList_Size(args[0]);
    long long index = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[2], &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE))
        return NULL;
    int64_t bytes = rows ? out.len / rows : 0;
    bool all = true;
    for (Py_ssize_t i = 0; all && i < rows; i++) {
        struct question *q = question_at(args[0], i);
        all = q && q->open &&
              core.shmb_host_values(q->host, q->key, index, (char *)out.buf + i * bytes, bytes) ==
                  bytes;
    }
    PyBuffer_Release(&out);
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
        Py_XDECREF(item); /* the list has it */
        if (!item) PyErr_Clear();
        if (!known) own->buffer.obj = NULL;
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

static bool column_of(PyObject *name, PyObject *values, Py_ssize_t rows, struct column *out) {
    out->rows.buffer.obj = NULL;
    out->list = PyList_CheckExact(values) || PyTuple_CheckExact(values) ? values : NULL;
    out->name = fast_name(name);
    if (!out->name) return false;
    if (out->list) return true;
    if (fast_array(values, &out->rows) && out->rows.tensor.rank && out->rows.dims[0] == rows)
        return true;
    return false;
}

/* The reply to one question. As fast_reply's: NULL where it was sent, a new reference. */
static PyObject *reply_row(struct question *q, const struct column *columns, int64_t n,
                           Py_ssize_t i) {
    struct value values[FAST_FIELDS];
    shmb_tensor fields[FAST_FIELDS];
    shmb_status status = SHMB_INVALID;
    bool keep = false, known = n && q->open && q->direct;
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

/* reply_rows(questions, columns) -> what reply gave for each, but True; a list of (index, outcome).
 * columns: a dict of arrays and lists, as many rows as questions. */
PyObject *fast_reply_rows(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyList_Check(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a list of questions and a dict");
    struct column columns[FAST_FIELDS];
    Py_ssize_t rows = PyList_Size(args[0]), at = 0;
    int64_t n = 0;
    PyObject *name, *values, *left = PyList_New(0);
    bool known = PyDict_Size(args[1]) <= FAST_FIELDS;
    while (left && known && PyDict_Next(args[1], &at, &name, &values))
        known = column_of(name, values, rows, &columns[n++]);
    for (Py_ssize_t i = 0; left && i < rows; i++) {
        struct question *q = question_at(args[0], i);
        Py_XINCREF((PyObject *)q); /* a value's own code may change the list */
        PyObject *outcome = q ? reply_row(q, columns, known ? n : 0, i) : NULL;
        Py_XDECREF((PyObject *)q);
        PyObject *pair = outcome ? Py_BuildValue("(nN)", i, outcome) : NULL;
        if (PyErr_Occurred() || (pair && PyList_Append(left, pair))) Py_CLEAR(left);
        Py_XDECREF(pair);
    }
    for (int64_t i = 0; i < n; i++) fast_release_values(&columns[i].rows, 1);
    return left;
}
