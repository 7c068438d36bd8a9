#include "fastpath.h"

static int add_all(PyObject *module) {
    bool failed = fast_find_classes() || fast_add_receiving(module) || fast_add_question(module) ||
                  fast_add_batch(module) || fast_add_asker(module) || fast_add_steps(module);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_all},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* the core's own locks do */
#endif
                                   {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fastpath", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fastpath(void) { return PyModuleDef_Init(&definition); }
