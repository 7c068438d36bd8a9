#include "steps.h"

#include <stdlib.h>
#include <string.h>

static int channel_of(int64_t key) { return (int)((key & SHMB_KEY_PLACE) >> SHMB_KEY_SLOT_BITS); }

static void set_state(struct steps *s, struct row *r, enum state state) {
    s->counts[r->state]--;
    s->counts[state]++;
    r->state = state;
    if (state != OPEN) r->key = NONE;
}

/* ---- Take ---- */

/* The number of the agent whose name a message has; NONE where it is not known yet. */
static int64_t agent_of(const struct steps *s, const shmb_tensor *t) {
    for (Py_ssize_t i = 0, n = PyList_Size(s->agents); i < n; i++) {
        char *name;
        Py_ssize_t bytes;
        if (!PyBytes_AsStringAndSize(PyList_GetItem(s->agents, i), &name, &bytes) &&
            bytes == t->size && memcmp(name, t->data, (size_t)bytes) == 0)
            return i;
    }
    return NONE;
}

static void set_output(struct steps *s, enum report_field which, Py_ssize_t row,
                       const void *value) {
    size_t bytes = (size_t)s->outputs[which].itemsize;
    memcpy((char *)s->outputs[which].buf + (size_t)row * bytes, value, bytes);
}

static void copy_features(struct steps *s, Py_ssize_t row, const struct plan *p,
                          const shmb_message *m) {
    for (Py_ssize_t i = 0; !p->no_observation && i < s->features_count; i++) {
        const struct feature *f = &s->features[i];
        memcpy((char *)f->rows.buf + (size_t)row * f->bytes, m->tensors[p->columns[i]].data,
               f->bytes);
    }
}

/* Numbers of the message, zeros where it has none. A bool may be any byte. Is the episode over? */
static bool copy_report(struct steps *s, Py_ssize_t row, const struct plan *p,
                        const shmb_message *m) {
    int64_t values[NUMBERS] = {0};
    for (int i = 0; i < NUMBERS && p->fields[REWARD] != NONE; i++)
        memcpy(&values[i], m->tensors[p->fields[i]].data, fast_report_bytes((enum report_field)i));
    bool done = values[DONE], truncated = values[TRUNCATED];
    set_output(s, REWARD, row, &values[REWARD]);
    set_output(s, DONE, row, &done);
    set_output(s, TRUNCATED, row, &truncated);
    set_output(s, STEP, row, &values[STEP]);
    return done || truncated;
}

static void end_row(struct steps *s, Py_ssize_t row) {
    set_state(s, &s->rows[row], IDLE);
    for (int i = 0; i < MAX_CHANNELS; i++)
        if (s->channels[i].row == row) s->channels[i].row = NONE;
}

static bool says_done(const struct plan *p, const shmb_message *m) {
    return p->fields[DONE] != NONE && (*(const char *)m->tensors[p->fields[DONE]].data ||
                                       *(const char *)m->tensors[p->fields[TRUNCATED]].data);
}

/* May a message of that plan be the row's next? */
static bool follows(const struct row *r, const struct plan *p, bool begins) {
    if (!p->fits || (p->no_observation && begins)) return false;
    if (begins) return p->fields[STEP] == NONE;
    return p->fields[STEP] != NONE || r->reports_rewards != REPORTS_REWARDS;
}

/* The request of a key becomes the row's; false: nothing was done, and Python is to look at it. */
static bool take(struct steps *s, Py_ssize_t row, int64_t key, bool begins) {
    struct row *r = &s->rows[row];
    const shmb_message *m = core.shmb_host_message(s->host, key);
    const struct plan *p = m ? fast_plan_of(s, r, key, m) : NULL;
    if (!p || !follows(r, p, begins)) return false;
    int64_t agent = p->fields[AGENT] == NONE ? NONE : agent_of(s, &m->tensors[p->fields[AGENT]]);
    if (p->fields[AGENT] != NONE && agent == NONE) return false;
    bool ends = says_done(p, m);
    if ((ends && s->defers) || (p->no_observation && !ends)) return false;
    copy_features(s, row, p, m);
    set_output(s, AGENT, row, &agent);
    ends = copy_report(s, row, p, m);
    r->trainer_announced = p->fields[STEP] != NONE;
    r->reports_rewards = begins ? UNKNOWN : r->trainer_announced ? REPORTS_REWARDS : ADVICE_ALONE;
    if (ends) {
        int64_t ignored = 0;
        shmb_tensor t = {.name = "advice", .dtype = SHMB_INT64, .size = 1, .data = &ignored};
        core.shmb_host_reply(s->host, key, false, &t, 1);
        s->ended++;
        end_row(s, row);
        return true;
    }
    set_state(s, r, OPEN);
    r->key = key;
    return true;
}

static bool is_row(const struct steps *s, Py_ssize_t row) {
    if (row >= 0 && row < s->count) return true;
    PyErr_Format(PyExc_IndexError, "expected a row below %zd, found %zd", s->count, row);
    return false;
}

static bool assign_channel(struct steps *s, Py_ssize_t row, int64_t key) {
    int channel = channel_of(key);
    if (key < 0 || channel >= MAX_CHANNELS) {
        PyErr_SetString(PyExc_ValueError, "expected the key of a request");
        return false;
    }
    s->channels[channel].row = (int)row;
    s->channels[channel].claim = core.shmb_host_claim(s->host, channel);
    return true;
}

/* begin(row, key) -> bool: an episode begins with that request. False: the row only has the channel
 * now, and Python is to look at the request. */
static PyObject *steps_begin(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    long long key;
    if (!PyArg_ParseTuple(args, "nL", &row, &key) || !is_row(s, row)) return NULL;
    if (!assign_channel(s, row, key)) return NULL;
    return PyBool_FromLong(take(s, row, key, true));
}

/* assign(row, key): the runner that sent it is the row's too. */
static PyObject *steps_assign(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    long long key;
    if (!PyArg_ParseTuple(args, "nL", &row, &key) || !is_row(s, row) ||
        !assign_channel(s, row, key))
        return NULL;
    Py_RETURN_NONE;
}

/* unassign(channel): its runner is no row's any more. */
static PyObject *steps_unassign(PyObject *self, PyObject *channel) {
    long long i = PyLong_AsLongLong(channel);
    if (PyErr_Occurred()) return NULL;
    if (i >= 0 && i < MAX_CHANNELS) ((struct steps *)self)->channels[i].row = NONE;
    Py_RETURN_NONE;
}

/* set_open(row, key, announced, reports): the row waits for an action for that request, which
 * Python has read. */
static PyObject *steps_set_open(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    long long key;
    int announced, reports;
    if (!PyArg_ParseTuple(args, "nLpi", &row, &key, &announced, &reports) || !is_row(s, row))
        return NULL;
    s->rows[row].trainer_announced = announced;
    s->rows[row].reports_rewards = (enum reports)reports;
    set_state(s, &s->rows[row], OPEN);
    s->rows[row].key = key;
    Py_RETURN_NONE;
}

/* take(row, key) -> bool: the next request of an episode; False: Python is to look at it. */
static PyObject *steps_take(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    long long key;
    if (!PyArg_ParseTuple(args, "nL", &row, &key) || !is_row(s, row)) return NULL;
    return PyBool_FromLong(s->rows[row].state == SENT && take(s, row, key, false));
}

/* The row of the channel's claim, where that is SENT; NONE. */
static int row_of_key(const struct steps *s, int64_t key) {
    int channel = channel_of(key);
    int row = channel < MAX_CHANNELS ? s->channels[channel].row : NONE;
    if (row == NONE || s->rows[row].state != SENT ||
        s->channels[channel].claim != core.shmb_host_claim(s->host, channel))
        return NONE;
    return row;
}

/* wait(timeout_ns) -> None: no row is SENT, and none begins; else a key at which Python is to look,
 * or -shmb_status. Waits a slice of the host's at most. */
static PyObject *steps_wait(PyObject *self, PyObject *timeout) {
    struct steps *s = (struct steps *)self;
    long long ns = PyLong_AsLongLong(timeout);
    if (PyErr_Occurred()) return NULL;
    while (s->counts[SENT] || s->counts[BEGINS]) {
        int64_t key = core.shmb_host_poll(s->host);
        if (key < 0) {
            Py_BEGIN_ALLOW_THREADS key = core.shmb_host_receive(s->host, ns);
            Py_END_ALLOW_THREADS
        }
        int row = key < 0 ? NONE : row_of_key(s, key);
        if (row == NONE || !take(s, row, key, false)) return PyLong_FromLongLong(key);
    }
    Py_RETURN_NONE;
}

/* ---- Send ---- */

static bool is_action(const struct steps *s, const void *data, shmb_dtype dtype) {
    if (!s->actions) return true;
    shmb_number n = core.shmb_number_at(data, dtype);
    return n.form == SHMB_WHOLE && n.i >= s->first_action && n.i - s->first_action < s->actions;
}

static shmb_status reply(struct steps *s, struct row *r, shmb_tensor *t) {
    t->name = r->trainer_announced ? "advice" : "learner";
    int64_t key = r->key;
    set_state(s, r, SENT);
    shmb_status status = core.shmb_host_reply_unwoken(s->host, key, t, 1);
    r->unwoken = key;
    if (status == SHMB_INVALID) {
        set_state(s, r, OPEN);
        r->key = key;
    }
    return status;
}

static void wake(struct steps *s, struct row *r) {
    if (r->unwoken != NONE) core.shmb_host_wake_runner(s->host, r->unwoken);
    r->unwoken = NONE;
}

/* send(actions) -> None: each row that waits for an action has its own now; else a row whose is
 * none of the actions, or -1: these are no array of n rows; nothing was done. What went wrong with
 * a compiler shows when its answer is waited for. */
static PyObject *steps_send(PyObject *self, PyObject *actions) {
    struct steps *s = (struct steps *)self;
    struct value all;
    if (!fast_array(actions, &all)) return PyLong_FromLong(NONE);
    shmb_tensor t = all.tensor;
    bool rows = t.rank && t.dims[0] == s->count && (t.rank == 1 || !s->actions);
    Py_ssize_t wrong = rows ? s->count : NONE;
    t.rank--;
    t.dims++;
    t.size = rows && s->count ? t.size / s->count : 0;
    size_t bytes = (size_t)t.size * core.shmb_dtype_size(t.dtype);
    const char *data = all.tensor.data;
    for (Py_ssize_t i = 0; i < s->count && wrong == s->count; i++)
        if (s->rows[i].state == OPEN && !is_action(s, data + (size_t)i * bytes, t.dtype)) wrong = i;
    for (Py_ssize_t i = 0; i < s->count && wrong == s->count; i++) {
        t.data = data + (size_t)i * bytes;
        if (s->rows[i].state == OPEN) reply(s, &s->rows[i], &t);
    }
    /* After all replies: a runner that is woken may take this CPU (bench/steps.py, loops). */
    for (Py_ssize_t i = 0; i < s->count; i++) wake(s, &s->rows[i]);
    fast_release_values(&all, 1);
    if (wrong == s->count) Py_RETURN_NONE;
    return PyLong_FromSsize_t(wrong);
}

/* reply(row, action) -> the status; None: nothing was done, and Python is to see to it. */
static PyObject *steps_reply(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    struct value value;
    Py_ssize_t row;
    PyObject *action;
    if (!PyArg_ParseTuple(args, "nO", &row, &action) || !is_row(s, row)) return NULL;
    struct row *r = &s->rows[row];
    if (r->state != OPEN || !fast_value(action, &value)) Py_RETURN_NONE;
    shmb_tensor t = value.tensor;
    bool fits = !s->actions || (!t.rank && is_action(s, t.data, t.dtype));
    shmb_status status = fits ? reply(s, r, &t) : SHMB_INVALID;
    wake(s, r);
    fast_release_values(&value, 1);
    if (status == SHMB_INVALID) Py_RETURN_NONE;
    return PyLong_FromLong((long)status);
}

/* ---- Rows, for Python ---- */

/* move(row, state): BEGINS, or SENT where Python has sent its action. */
static PyObject *steps_move(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    int state;
    if (!PyArg_ParseTuple(args, "ni", &row, &state) || !is_row(s, row)) return NULL;
    if (state != BEGINS && state != SENT)
        return PyErr_Format(PyExc_ValueError, "expected BEGINS or SENT, found %d", state);
    set_state(s, &s->rows[row], (enum state)state);
    Py_RETURN_NONE;
}

/* end(row, over): it has no episode any more, and no channel. over: the episode counts as ended. */
static PyObject *steps_end(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    int over;
    if (!PyArg_ParseTuple(args, "np", &row, &over) || !is_row(s, row)) return NULL;
    s->ended += over;
    end_row(s, row);
    Py_RETURN_NONE;
}

/* row(row) -> (state, key or -1, announced, reports) */
static PyObject *steps_row(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "n", &row) || !is_row(s, row)) return NULL;
    const struct row *r = &s->rows[row];
    return Py_BuildValue("iLii", (int)r->state, (long long)r->key, (int)r->trainer_announced,
                         (int)r->reports_rewards);
}

/* channels(row) -> [(channel, does its runner have it still?)] */
static PyObject *steps_channels(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "n", &row) || !is_row(s, row)) return NULL;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < MAX_CHANNELS; i++) {
        if (s->channels[i].row != row) continue;
        bool there = s->channels[i].claim == core.shmb_host_claim(s->host, i);
        PyObject *pair = Py_BuildValue("(iO)", i, there ? Py_True : Py_False);
        if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* ---- Life ---- */

/* shape(features): the arrays that observations go to from now on, by name. */
static PyObject *steps_shape(PyObject *self, PyObject *features) {
    if (!PyDict_Check(features)) return PyErr_Format(PyExc_TypeError, "expected a dict");
    if (!fast_shape((struct steps *)self, features)) return NULL;
    Py_RETURN_NONE;
}

/* Steps(host, rewards, terminated, truncated, steps, agents, names): arrays of n numbers, and the
 * list in which Python numbers agents. */
static PyObject *steps_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    unsigned long long host;
    PyObject *arrays[FIELDS], *names;
    (void)named;
    if (!PyArg_ParseTuple(args, "KOOOOOO!", &host, arrays, arrays + 1, arrays + 2, arrays + 3,
                          arrays + 4, &PyList_Type, &names))
        return NULL;
    struct steps *s = (struct steps *)PyType_GenericAlloc(type, 0);
    if (!s) return NULL;
    static const Py_ssize_t sizes[FIELDS] = {8, 1, 1, 8, 8};
    s->host = (shmb_host *)(uintptr_t)host;
    s->count = s->counts[IDLE] = PyObject_Size(arrays[0]);
    for (int i = 0; i < MAX_CHANNELS; i++) s->channels[i].row = NONE;
    for (int i = 0; i < FIELDS; i++) {
        if (s->count < 1 || !fast_rows_of(arrays[i], s->count, &s->outputs[i])) goto fail;
        if (s->outputs[i].len != s->count * sizes[i]) {
            PyErr_SetString(PyExc_ValueError, "expected arrays of the given dtypes");
            goto fail;
        }
    }
    Py_INCREF(names);
    s->agents = names;
    s->rows = calloc((size_t)s->count, sizeof *s->rows);
    for (Py_ssize_t i = 0; s->rows && i < s->count; i++) s->rows[i].key = s->rows[i].unwoken = NONE;
    if (s->rows) return (PyObject *)s;
    PyErr_NoMemory();
fail:
    Py_DECREF(s);
    return NULL;
}

static void steps_dealloc(PyObject *self) {
    struct steps *s = (struct steps *)self;
    PyTypeObject *self_type = Py_TYPE(self);
    if (s->rows) fast_forget_shape(s);
    for (int i = 0; i < FIELDS; i++)
        if (s->outputs[i].obj) PyBuffer_Release(&s->outputs[i]);
    free(s->rows);
    Py_XDECREF(s->agents);
    freefunc release = (freefunc)PyType_GetSlot(self_type, Py_tp_free);
    release(self);
    Py_DECREF(self_type);
}

static PyMemberDef members[] = {
    {"begins", T_PYSSIZET, offsetof(struct steps, counts[BEGINS]), READONLY, NULL},
    {"under_way", T_PYSSIZET, offsetof(struct steps, counts[SENT]), READONLY, NULL},
    {"ended", T_PYSSIZET, offsetof(struct steps, ended), READONLY, NULL},
    {"first_action", T_LONGLONG, offsetof(struct steps, first_action), 0, NULL},
    {"actions", T_LONGLONG, offsetof(struct steps, actions), 0, NULL},
    {"defers", T_BOOL, offsetof(struct steps, defers), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {{"shape", steps_shape, METH_O, NULL},
                                {"begin", steps_begin, METH_VARARGS, NULL},
                                {"assign", steps_assign, METH_VARARGS, NULL},
                                {"unassign", steps_unassign, METH_O, NULL},
                                {"set_open", steps_set_open, METH_VARARGS, NULL},
                                {"take", steps_take, METH_VARARGS, NULL},
                                {"wait", steps_wait, METH_O, NULL},
                                {"send", steps_send, METH_O, NULL},
                                {"reply", steps_reply, METH_VARARGS, NULL},
                                {"move", steps_move, METH_VARARGS, NULL},
                                {"end", steps_end, METH_VARARGS, NULL},
                                {"row", steps_row, METH_VARARGS, NULL},
                                {"channels", steps_channels, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, (void *)steps_new},
                              {Py_tp_dealloc, (void *)steps_dealloc},
                              {Py_tp_members, members},
                              {Py_tp_methods, methods},
                              {0, NULL}};
static PyType_Spec spec = {"shmbridge._fastpath.Steps", sizeof(struct steps), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int fast_add_steps(PyObject *module) {
    if (PyModule_AddIntMacro(module, IDLE) || PyModule_AddIntMacro(module, BEGINS) ||
        PyModule_AddIntMacro(module, OPEN) || PyModule_AddIntMacro(module, SENT) ||
        PyModule_AddIntMacro(module, UNKNOWN) || PyModule_AddIntMacro(module, ADVICE_ALONE) ||
        PyModule_AddIntMacro(module, REPORTS_REWARDS))
        return -1;
    return fast_add_class(module, &spec, NULL);
}
