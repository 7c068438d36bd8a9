#include <string.h>

#include "fastpath.h"

static PyTypeObject *ndarray, *number, *boolean;

int fast_find_classes(void) {
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (!numpy) return -1;
    ndarray = (PyTypeObject *)PyObject_GetAttrString(numpy, "ndarray");
    number = (PyTypeObject *)PyObject_GetAttrString(numpy, "number");
    boolean = (PyTypeObject *)PyObject_GetAttrString(numpy, "bool_");
    Py_DECREF(numpy);
    return ndarray && number && boolean ? 0 : -1;
}

static shmb_dtype integer_of(size_t bytes, bool natural) {
    static const uint8_t of_size[9] = {
        [1] = SHMB_INT8, [2] = SHMB_INT16, [4] = SHMB_INT32, [8] = SHMB_INT64};
    shmb_dtype dtype = bytes < sizeof of_size ? (shmb_dtype)of_size[bytes] : SHMB_ANY;
    return dtype && natural ? (shmb_dtype)(dtype + SHMB_UINT8 - SHMB_INT8) : dtype;
}

/* The dtype of an element as the struct module names it, in the machine's byte order. */
static shmb_dtype dtype_of(const char *format, size_t bytes) {
    if (!format || !*format || format[1]) return SHMB_ANY;
    if (strchr("bhilq", *format)) return integer_of(bytes, false);
    if (strchr("BHILQ", *format)) return integer_of(bytes, true);
    switch (*format) {
    case '?': return SHMB_BOOL;
    case 'e': return SHMB_FLOAT16;
    case 'f': return SHMB_FLOAT32;
    case 'd': return SHMB_FLOAT64;
    default: return SHMB_ANY;
    }
}

static bool from_buffer(PyObject *object, bool scalar, struct value *out) {
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        PyErr_Clear();
        out->buffer.obj = NULL;
        return false;
    }
    const Py_buffer *b = &out->buffer;
    shmb_dtype dtype = dtype_of(b->format, (size_t)b->itemsize);
    if (!dtype || b->ndim > SHMB_MAX_RANK || (scalar && b->ndim)) {
        PyBuffer_Release(&out->buffer);
        return false;
    }
    for (int i = 0; i < b->ndim; i++) out->dims[i] = b->shape[i];
    out->tensor = (shmb_tensor){.dtype = dtype,
                                .kind = SHMB_TENSOR,
                                .rank = b->ndim,
                                .size = b->len / b->itemsize,
                                .dims = out->dims,
                                .data = b->buf};
    return true;
}

static bool from_number(shmb_dtype dtype, struct value *out) {
    out->buffer.obj = NULL;
    out->tensor = (shmb_tensor){
        .dtype = dtype, .kind = SHMB_TENSOR, .size = 1, .dims = out->dims, .data = &out->number};
    return true;
}

/* A torch tensor and its like: its own way to an array takes a fraction of what DLPack does. */
static bool from_numpy(PyObject *object, struct value *out) {
    if (!PyObject_HasAttrString((PyObject *)Py_TYPE(object), "__dlpack__")) return false;
    PyObject *array = PyObject_CallMethod(object, "numpy", NULL);
    if (!array) PyErr_Clear(); /* on another device, of no dtype of numpy's, with a gradient */
    bool taken = array && Py_TYPE(array) == ndarray && from_buffer(array, false, out);
    Py_XDECREF(array);
    return taken;
}

bool fast_value(PyObject *object, struct value *out) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyFloat_Type) {
        out->number.f = PyFloat_AsDouble(object);
        return from_number(SHMB_FLOAT64, out);
    }
    if (type == &PyLong_Type) {
        int overflow;
        out->number.i = PyLong_AsLongLongAndOverflow(object, &overflow);
        return !overflow && from_number(SHMB_INT64, out);
    }
    if (type == &PyBool_Type) {
        out->number.b = object == Py_True;
        return from_number(SHMB_BOOL, out);
    }
    if (type == ndarray) return from_buffer(object, false, out);
    if (PyType_IsSubtype(type, number) || PyType_IsSubtype(type, boolean))
        return from_buffer(object, true, out);
    return from_numpy(object, out);
}

bool fast_array(PyObject *object, struct value *out) {
    return Py_TYPE(object) == ndarray && from_buffer(object, false, out);
}

void fast_release_values(struct value *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (values[i].buffer.obj) PyBuffer_Release(&values[i].buffer);
}

const char *fast_name(PyObject *name) {
    Py_ssize_t bytes;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &bytes) : NULL;
    if (!text) PyErr_Clear();
    return text && bytes && strlen(text) == (size_t)bytes ? text : NULL;
}

PyObject *fast_number(const shmb_tensor *t) {
    shmb_number n = shmb_number_at(t->data, t->dtype);
    if (t->dtype == SHMB_BOOL) return PyBool_FromLong((long)n.i);
    if (n.form == SHMB_WHOLE) return PyLong_FromLongLong(n.i);
    return n.form == SHMB_REAL ? PyFloat_FromDouble(n.f) : PyLong_FromUnsignedLongLong(n.u);
}
