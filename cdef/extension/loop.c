#include "fastpath.h"

/* loop(generator): an iterator over it. Python closes the generator of a `for` that is left, and
 * does not say whether by an exception. This one throws the exception into the generator first,
 * which is heard there as if its yield raised it. */
struct loop {
    PyObject_HEAD PyObject *generator;
};

#define OBJECTS(X) X(generator)
FAST_COLLECTS(loop, OBJECTS)

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *generator;
    (void)named;
    if (!PyArg_ParseTuple(args, "O", &generator)) return NULL;
    struct loop *made = (struct loop *)PyType_GenericAlloc(type, 0);
    if (made) made->generator = Py_NewRef(generator);
    return (PyObject *)made;
}

static PyObject *loop_next(PyObject *self) {
    PyObject *generator = ((struct loop *)self)->generator;
    return generator ? PyIter_Next(generator) : NULL;
}

static void loop_dealloc(PyObject *self) {
    PyObject *type, *error, *trace, *generator = ((struct loop *)self)->generator;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &error, &trace);
    if (type && generator) {
        PyErr_NormalizeException(&type, &error, &trace);
        Py_XDECREF(PyObject_CallMethod(generator, "throw", "O", error));
        PyErr_Clear(); /* the same error again */
    }
    fast_dealloc(self);
    PyErr_Restore(type, error, trace);
}

static PyType_Slot slots[] = {{Py_tp_new, (void *)loop_new},
                              {Py_tp_dealloc, (void *)loop_dealloc},
                              FAST_COLLECTED(loop),
                              {Py_tp_iter, (void *)PyObject_SelfIter},
                              {Py_tp_iternext, (void *)loop_next},
                              {0, NULL}};
static PyType_Spec spec = {"shmbridge._fastpath.loop", sizeof(struct loop), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

int fast_add_loop(PyObject *module) { return fast_add_class(module, &spec, NULL); }
