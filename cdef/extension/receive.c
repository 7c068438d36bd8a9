#include "fastpath.h"

enum {
    CONTENDED_NS = 1000 * 1000,    /* for the GIL, where another thread computes */
    PATIENCE_NS = 5 * 1000 * 1000, /* a switch interval: what it would take to get the GIL back */
};

static bool patient; /* the next request is waited for with the GIL held */

/* It took long to get the GIL back, for a message that takes its sender longer to write than a poll
 * looks: be patient. */
static int64_t fast_wait(shmb_host *host, int64_t timeout) {
    int64_t key, came;
    Py_BEGIN_ALLOW_THREADS key = shmb_host_receive(host, timeout);
    came = shmb_clock_ns();
    Py_END_ALLOW_THREADS const shmb_message *m =
        shmb_clock_ns() - came > CONTENDED_NS ? shmb_host_message(host, key) : NULL;
    patient = m && m->body_bytes >= FAST_LONG_COPY;
    return key;
}

int64_t fast_receive(shmb_host *host, int64_t timeout) {
    int64_t key = shmb_host_poll(host);
    if (key < 0 && patient && timeout >= PATIENCE_NS)
        for (int64_t until = shmb_clock_ns() + PATIENCE_NS; key < 0 && shmb_clock_ns() < until;)
            key = shmb_host_poll(host);
    return key < 0 ? fast_wait(host, timeout) : key;
}

/* receive(host, timeout_ns) -> key, or -shmb_status: shmb_host_receive. */
static PyObject *fast_receive_request(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "expected a host and a timeout");
    shmb_host *host = PyLong_AsVoidPtr(args[0]);
    int64_t timeout = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(fast_receive(host, timeout));
}

static PyMethodDef functions[] = {FAST_METHOD("receive", fast_receive_request),
                                  {NULL, NULL, 0, NULL}};
int fast_add_receiving(PyObject *module) { return PyModule_AddFunctions(module, functions); }
