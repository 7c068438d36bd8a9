#include <string.h>

#include "fastpath.h"

int fast_add_class(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    PyObject *made = PyType_FromSpec(spec);
    if (made && type) *type = (PyTypeObject *)Py_NewRef(made);
    return made ? PyModule_AddObject(module, strrchr(spec->name, '.') + 1, made) : -1;
}

void fast_dealloc(PyObject *self) {
    PyTypeObject *own = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    inquiry clear = (inquiry)PyType_GetSlot(own, Py_tp_clear);
    freefunc release = (freefunc)PyType_GetSlot(own, Py_tp_free);
    clear(self);
    release(self);
    Py_DECREF(own);
}
