#include "fastpath.h"

/* loop(generator): an iterator over it. Python closes the generator of a `for` that is left, and
 * does not say whether by an exception. This one throws the exception into the generator first,
 * which is heard there as if its yield raised it. */
struct loop {
    PyObject_HEAD PyObject *generator;
};

static int loop_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct loop *)self)->generator);
    return 0;
}

static int loop_clear(PyObject *self) {
    Py_CLEAR(((struct loop *)self)->generator);
    return 0;
}

static PyObject *loop_next(PyObject *self) {
    PyObject *generator = ((struct loop *)self)->generator;
    return generator ? PyIter_Next(generator) : NULL;
}

static void loop_dealloc(PyObject *self) {
    PyTypeObject *own = Py_TYPE(self);
    PyObject *type, *error, *trace, *generator = ((struct loop *)self)->generator;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &error, &trace);
    if (type && generator) {
        PyErr_NormalizeException(&type, &error, &trace);
        Py_XDECREF(PyObject_CallMethod(generator, "throw", "O", error));
        PyErr_Clear(); /* the same error again */
    }
    Py_XDECREF(generator);
    PyErr_Restore(type, error, trace);
    PyObject_GC_Del(self);
    Py_DECREF(own);
}

static PyType_Slot loop_slots[] = {
    {Py_tp_dealloc, (void *)loop_dealloc}, {Py_tp_traverse, (void *)loop_traverse},
    {Py_tp_clear, (void *)loop_clear},     {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)loop_next},   {0, NULL}};
static PyType_Spec loop_spec = {"shmbridge._fastpath.Loop", sizeof(struct loop), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, loop_slots};

PyObject *fast_loop(PyObject *module, PyObject *generator) {
    PyTypeObject *type = (PyTypeObject *)PyObject_GetAttrString(module, "Loop");
    struct loop *made = type ? PyObject_GC_New(struct loop, type) : NULL;
    Py_XDECREF((PyObject *)type);
    if (!made) return NULL;
    Py_INCREF(generator);
    made->generator = generator;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

int fast_add_loop(PyObject *module) {
    PyObject *type = PyType_FromSpec(&loop_spec);
    return !type || PyModule_AddObject(module, "Loop", type) ? -1 : 0;
}
