/* shmbridge._fastpath: the calls that a message takes, as C functions of Python's limited API.
 *
 * cffi releases the GIL around every call, and whoever releases it while another thread waits for
 * it gets it back only a switch interval (5 ms) later. So: look for a request and reply with the
 * GIL held, and release it only to wait or to copy much. cffi's module is in the same file, so both
 * call one core. */
#ifndef FAST_H
#define FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "base/clock.h"
#include "host/host.h"
#include "message/convert.h"
#include "runner/nonblocking.h"
#include "shmbridge.h"

/* Drops what a call returned: true where that was no exception. */
static inline bool fast_done(PyObject *result) {
    Py_XDECREF(result);
    return result != NULL;
}
/* Appends an item, which it takes over; NULL: an exception is set. */
static inline bool fast_append(PyObject *list, PyObject *item) {
    bool appended = item && !PyList_Append(list, item);
    Py_XDECREF(item);
    return appended;
}

/* ---- Whoever refers to an array keeps it ---- */

/* Has only one reference to the object been made? Where that cannot be known: no. */
static inline bool fast_unique(PyObject *object) {
#if PY_VERSION_HEX >= 0x030E0000 && !defined(Py_LIMITED_API)
    return PyUnstable_Object_IsUniquelyReferenced(object);
#elif defined(Py_GIL_DISABLED)
    (void)object;
    return false;
#else
    return Py_REFCNT(object) == 1;
#endif
}
#ifdef Py_GIL_DISABLED
#define FAST_LOCKED(object) Py_BEGIN_CRITICAL_SECTION(object);
#define FAST_UNLOCKED Py_END_CRITICAL_SECTION();
#else /* the GIL does */
#define FAST_LOCKED(object)
#define FAST_UNLOCKED
#endif

/* ---- value.c: Python values as tensors ---- */

/* A value as a tensor, which lies in itself or in the object that it comes from. */
struct value {
    shmb_tensor tensor;
    int64_t dims[SHMB_MAX_RANK];
    union {
        int64_t i;
        double f;
        uint8_t b;
    } number;
    Py_buffer buffer; /* of an object; buffer.obj NULL: there is none */
};
/* Finds numpy's classes, which are known by sight. -1: an exception is set. */
int fast_find_classes(void);
/* Python's int, float and bool, numpy's scalars, arrays and torch's tensors in C's order, all of a
 * dtype of ours. False for anything else, which tensor.as_field knows or refuses; no exception is
 * set. A value that came out is to be released. */
bool fast_value(PyObject *object, struct value *out);
/* An array of a dtype of ours in C's order. */
bool fast_array(PyObject *object, struct value *out);
void fast_release_values(struct value *values, int64_t count);
/* A name of one field; NULL where it is none, no exception set. */
const char *fast_name(PyObject *name);
/* A number of rank 0 as Python's; NULL with the exception set. */
PyObject *fast_number(const shmb_tensor *t);

enum {
    FAST_FIELDS = 64,        /* more of them, or no such values: the long way */
    FAST_LONG_COPY = 1 << 20 /* bytes: so many are copied without the GIL */
};

/* ---- question.c ---- */

/* What the messages of one key share: where their features lie, and arrays over the slot, which
 * later messages use again unless somebody keeps one. */
struct layout {
    PyObject_HEAD shmb_host *host;
    long long key;
    PyTypeObject *type;        /* of its requests */
    PyObject *slot;            /* a buffer: who has it, or an array over it, keeps the slot */
    PyObject *roots;           /* arrays over slot, by name or place */
    PyObject *ready;           /* arrays that can be returned as they are, by name */
    PyObject *form;            /* what is equal in a batch, one object for all that have it */
    unsigned long long placed; /* of its message */
    unsigned long long made;   /* how many requests */
    char copy;                 /* its arrays are copies */
    char direct;               /* advice goes out as it is: the host checks nothing */
    char texts;                /* its messages hold strings */
    char lists;                /* its messages hold lists, which go with their runner */
};
/* What a Request is below. Its end answers it. */
struct question {
    PyObject_HEAD struct layout *layout;
    char open; /* has no reply yet */
};
extern PyTypeObject *fast_question_type;
/* Sends the fields; INVALID: nothing was done. */
shmb_status fast_question_reply(struct question *q, const shmb_tensor *fields, int64_t count);
/* A new request of layouts[key]; NULL where that is not known, or on an error. */
struct question *fast_question_of(PyObject *layouts, PyObject *key);

/* ---- receive.c ---- */

/* shmb_host_receive, but looks with the GIL held first, and waits without it. */
int64_t fast_receive(shmb_host *host, int64_t timeout);

/* ---- class.c: classes, of which Python's own are subclasses ---- */

/* Makes a class that the module has under its name; *type, unless NULL, holds it too. */
int fast_add_class(PyObject *module, PyType_Spec *spec, PyTypeObject **type);
void fast_dealloc(PyObject *self);
/* What the garbage collector calls: MEMBERS(X) is X(member) for each that is an object. */
#define FAST_VISIT(member) Py_VISIT(object->member);
#define FAST_CLEAR(member) Py_CLEAR(object->member);
#define FAST_COLLECTS(name, MEMBERS)                                                               \
    static int name##_traverse(PyObject *self, visitproc visit, void *arg) {                       \
        struct name *object = (struct name *)self;                                                 \
        Py_VISIT(Py_TYPE(self));                                                                   \
        MEMBERS(FAST_VISIT)                                                                        \
        return 0;                                                                                  \
    }                                                                                              \
    static int name##_clear(PyObject *self) {                                                      \
        struct name *object = (struct name *)self;                                                 \
        MEMBERS(FAST_CLEAR)                                                                        \
        return 0;                                                                                  \
    }
#define FAST_COLLECTED(name)                                                                       \
    {Py_tp_traverse, (void *)name##_traverse}, { Py_tp_clear, (void *)name##_clear }

/* What each file adds to the module: its class and functions. -1: an exception is set. */
int fast_add_receiving(PyObject *module); /* receive.c */
int fast_add_question(PyObject *module);
int fast_add_batch(PyObject *module);
int fast_add_asker(PyObject *module);
int fast_add_steps(PyObject *module);
#define FAST_METHOD(name, function)                                                                \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}

#endif
