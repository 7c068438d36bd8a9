#include "fastpath.h"

#include <string.h>

struct fast_core core;

/* setup(addresses, classes): of the functions that CORE names, and for fast_set_classes. */
static PyObject *setup(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    enum { FUNCTIONS = sizeof core / sizeof(void *) };
    if (count != FUNCTIONS + 3)
        return PyErr_Format(PyExc_TypeError, "expected %d addresses and 3 classes, found %zd",
                            (int)FUNCTIONS, count);
    for (int i = 0; i < FUNCTIONS; i++) {
        void *address = PyLong_AsVoidPtr(args[i]);
        if (!address) return NULL;
        memcpy((char *)&core + (size_t)i * sizeof address, &address, sizeof address);
    }
    PyObject *const *classes = args + FUNCTIONS;
    if (fast_set_classes(classes[0], classes[1], classes[2]))
        return PyErr_Format(PyExc_TypeError, "expected classes");
    Py_RETURN_NONE;
}

#define NAME(name, result, parameters) #name,
static int add_all(PyObject *module) {
    static const char *const names[] = {FAST_CORE(NAME)};
    PyObject *core_names = PyList_New(0);
    for (size_t i = 0; core_names && i < sizeof names / sizeof *names; i++)
        if (!fast_append(core_names, PyUnicode_FromString(names[i]))) Py_CLEAR(core_names);
    if (!core_names || PyModule_AddObject(module, "CORE", core_names)) return -1;
    return fast_add_question(module) || fast_add_questions(module) || fast_add_asker(module) ||
                   fast_add_steps(module)
               ? -1
               : 0;
}

#define METHOD(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD("setup", setup),
                                METHOD("receive", fast_receive_request),
                                METHOD("take", fast_take),
                                METHOD("reply", fast_reply),
                                METHOD("request", fast_request),
                                METHOD("text", fast_text),
                                METHOD("collect", fast_collect),
                                METHOD("gather", fast_gather),
                                METHOD("reply_rows", fast_reply_rows),
                                METHOD("evaluate", fast_evaluate),
                                METHOD("fill", fast_fill),
                                METHOD("ask", fast_ask),
                                METHOD("send", fast_send),
                                METHOD("receive_advice", fast_receive_advice),
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_all},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* the core's own locks do */
#endif
                                   {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fastpath", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fastpath(void) { return PyModuleDef_Init(&definition); }
