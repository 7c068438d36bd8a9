#include "fastpath.h"

static int add_all(PyObject *module) {
    return fast_find_classes() || fast_add_question(module) || fast_add_questions(module) ||
                   fast_add_asker(module) || fast_add_steps(module)
               ? -1
               : 0;
}

#define METHOD(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD("receive", fast_receive_request),
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
