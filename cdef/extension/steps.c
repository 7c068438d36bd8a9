#include "steps.h"

#include <stdlib.h>
#include <string.h>

static int channel_of(int64_t key) { return (int)((key & SHMB_KEY_PLACE) >> SHMB_KEY_SLOT_BITS); }

static void *output(const struct steps *s, enum report_field which, Py_ssize_t row) {
    return (char *)s->outputs[which].buf + row * s->outputs[which].itemsize;
}

static void set_state(struct steps *s, Py_ssize_t row, enum state state) {
    struct row *r = &s->rows[row];
    s->counts[r->state]--;
    s->counts[state]++;
    r->state = state;
    if (state != OPEN) r->key = NONE;
    if (state == BEGINS) r->rewarded = r->between = false;
    if (state == BEGINS || state == SENT) /* its rewards count from here on */
        memset(output(s, REWARD, row), 0, sizeof(double));
}

/* ---- Take ---- */

/* The number of the agent whose name a message has, a new one where it is not known yet; NONE:
 * there is no memory for that. */
static int64_t agent_of(const struct steps *s, const shmb_tensor *t) {
    Py_ssize_t n = PyList_Size(s->agents);
    for (Py_ssize_t i = 0; i < n; i++) {
        char *name;
        Py_ssize_t bytes;
        if (!PyBytes_AsStringAndSize(PyList_GetItem(s->agents, i), &name, &bytes) &&
            bytes == t->size && memcmp(name, t->data, (size_t)bytes) == 0)
            return i;
    }
    if (fast_append(s->agents, PyBytes_FromStringAndSize(t->data, t->size))) return n;
    PyErr_Clear();
    return NONE;
}

static void set_output(struct steps *s, enum report_field which, Py_ssize_t row,
                       const void *value) {
    memcpy(output(s, which, row), value, (size_t)s->outputs[which].itemsize);
}

static void copy_features(struct steps *s, Py_ssize_t row, const struct plan *p,
                          const shmb_message *m) {
    for (Py_ssize_t i = 0; !p->no_observation && i < s->features_count; i++) {
        const struct feature *f = &s->features[i];
        memcpy((char *)f->rows.buf + (size_t)row * f->bytes, m->tensors[p->columns[i]].data,
               f->bytes);
    }
}

/* A number of the message, 0 where it has none. */
static shmb_number number_of(const struct plan *p, const shmb_message *m, enum report_field which) {
    if (p->fields[which] == NONE) return (shmb_number){0};
    const shmb_tensor *t = &m->tensors[p->fields[which]];
    return shmb_number_at(t->data, t->dtype);
}

static bool is_last(const struct plan *p, const shmb_message *m) {
    return number_of(p, m, DONE).f != 0 || number_of(p, m, TRUNCATED).f != 0;
}

/* Rewards add up from one action to the next. */
static void copy_report(struct steps *s, Py_ssize_t row, const struct plan *p,
                        const shmb_message *m) {
    double reward = number_of(p, m, REWARD).f, sum;
    bool done = number_of(p, m, DONE).f != 0, truncated = number_of(p, m, TRUNCATED).f != 0;
    int64_t step = number_of(p, m, STEP).i;
    int64_t agent = p->fields[AGENT] == NONE ? NONE : agent_of(s, &m->tensors[p->fields[AGENT]]);
    memcpy(&sum, output(s, REWARD, row), sizeof sum);
    sum += reward;
    if (s->compilations) done = truncated = false; /* its end is the compilation's */
    set_output(s, REWARD, row, &sum);
    set_output(s, DONE, row, &done);
    set_output(s, TRUNCATED, row, &truncated);
    set_output(s, STEP, row, &step);
    set_output(s, AGENT, row, &agent);
    s->rows[row].rewarded = s->rows[row].rewarded || reward != 0;
}

static void end_row(struct steps *s, Py_ssize_t row) {
    set_state(s, row, IDLE);
    for (int i = 0; i < MAX_CHANNELS; i++)
        if (s->channels[i].row == row) s->channels[i].row = NONE;
}

static enum verdict judge(const struct steps *s, const struct row *r, const struct plan *p,
                          const shmb_message *m, bool payload) {
    bool reports = p->fields[STEP] != NONE;
    double reward = p->fits ? number_of(p, m, REWARD).f : 0;
    if (r->state == OPEN) return EARLY;
    if (r->state == IDLE || (r->state == BEGINS && reports)) return FOREIGN;
    if (r->state == SENT && !reports && r->reports_rewards == REPORTS_REWARDS && !s->compilations)
        return ANOTHER;
    if (!p->fits || reward != reward) return WRONG;
    /* what a compilation said at the end of an episode is kept until its own */
    bool kept = r->between || (s->compilations && is_last(p, m));
    return (p->payload || kept) && !payload ? PAYLOAD : TAKEN;
}

/* Takes a request of the row's. payload: Python has copied what it is to copy. */
static enum verdict take(struct steps *s, Py_ssize_t row, int64_t key, bool payload) {
    struct row *r = &s->rows[row];
    const shmb_message *m = shmb_host_message(s->host, key);
    const struct plan *p = m ? fast_plan_of(s, r, key, m) : NULL;
    if (!p) return GONE;
    enum verdict verdict = judge(s, r, p, m, payload);
    if (verdict != TAKEN) return verdict;
    bool begins = r->state == BEGINS;
    copy_features(s, row, p, m);
    copy_report(s, row, p, m);
    r->between = is_last(p, m);
    r->trainer_announced = p->fields[STEP] != NONE;
    r->reports_rewards = begins ? UNKNOWN : r->trainer_announced ? REPORTS_REWARDS : ADVICE_ALONE;
    if (!r->between) {
        set_state(s, row, OPEN);
        r->key = key;
        return TAKEN;
    }
    if (!s->compilations) {
        s->ended++;
        end_row(s, row);
    }
    return ENDED;
}

static bool is_row(const struct steps *s, Py_ssize_t row) {
    if (row >= 0 && row < s->count) return true;
    PyErr_Format(PyExc_IndexError, "expected a row below %zd, found %zd", s->count, row);
    return false;
}

static bool keep_early(struct steps *s, int64_t key) {
    return fast_append(s->early, PyLong_FromLongLong(key));
}

static bool assign_channel(struct steps *s, Py_ssize_t row, int64_t key) {
    int channel = channel_of(key);
    if (key < 0 || channel >= MAX_CHANNELS) {
        PyErr_SetString(PyExc_ValueError, "expected the key of a request");
        return false;
    }
    s->channels[channel].row = (int)row;
    s->channels[channel].claim = shmb_host_claim(s->host, channel);
    return true;
}

/* take(row, key) -> verdict: the request becomes the row's, where it can, with its runner. */
static PyObject *steps_take(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    long long key;
    if (!PyArg_ParseTuple(args, "nL", &row, &key) || !is_row(s, row)) return NULL;
    if (!assign_channel(s, row, key)) return NULL;
    enum verdict verdict = take(s, row, key, true);
    if (verdict >= FOREIGN && s->rows[row].state == BEGINS) s->channels[channel_of(key)].row = NONE;
    if (verdict == EARLY && !keep_early(s, key)) return NULL;
    return PyLong_FromLong((long)verdict);
}

/* unassign(channel): its runner is no row's any more. */
static PyObject *steps_unassign(PyObject *self, PyObject *channel) {
    long long i = PyLong_AsLongLong(channel);
    if (PyErr_Occurred()) return NULL;
    if (i >= 0 && i < MAX_CHANNELS) ((struct steps *)self)->channels[i].row = NONE;
    Py_RETURN_NONE;
}

/* The row of the channel's claim; NONE. */
static int row_of_key(const struct steps *s, int64_t key) {
    int channel = channel_of(key);
    int row = channel < MAX_CHANNELS ? s->channels[channel].row : NONE;
    return row != NONE && s->channels[channel].claim == shmb_host_claim(s->host, channel) ? row
                                                                                          : NONE;
}

/* Takes one that came too early out of the list, once its row waits for a request or is over. */
static int64_t next_early(struct steps *s) {
    for (Py_ssize_t i = 0, n = PyList_Size(s->early); i < n; i++) {
        int64_t key = PyLong_AsLongLong(PyList_GetItem(s->early, i));
        int row = row_of_key(s, key);
        if (row != NONE && s->rows[row].state == OPEN) continue;
        PySequence_DelItem(s->early, i);
        return key;
    }
    return NONE;
}

/* The next key, or -shmb_status; *failed: an exception is set. receive: Python's, or NULL. */
static int64_t next_key(struct steps *s, int64_t ns, PyObject *receive, bool *failed) {
    int64_t key = next_early(s);
    if (key >= 0) return key;
    if (!s->direct) {
        PyObject *found = PyObject_CallFunction(receive, "L", (long long)ns);
        key = found ? PyLong_AsLongLong(found) : NONE;
        Py_XDECREF(found);
        *failed = PyErr_Occurred();
        return key;
    }
    key = shmb_host_poll(s->host);
    if (key >= 0) return key;
    Py_BEGIN_ALLOW_THREADS key = shmb_host_receive(s->host, ns);
    Py_END_ALLOW_THREADS return key;
}

/* Is that all for a request? The last one's reply is ignored. */
static bool settle(struct steps *s, int64_t key, enum verdict verdict) {
    int64_t ignored = 0;
    shmb_tensor t = {.name = "advice", .dtype = SHMB_INT64, .size = 1, .data = &ignored};
    if (verdict == ENDED) shmb_host_reply(s->host, key, 0, &t, 1);
    return verdict == EARLY ? keep_early(s, key) : verdict < EARLY;
}

/* wait(timeout_ns, receive) -> None: no row is SENT, and none begins; else a key at which Python is
 * to look, or -shmb_status. Waits a slice of the host's at most. receive: called in place of the
 * host's unless `direct`. */
static PyObject *steps_wait(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    long long ns;
    PyObject *receive;
    bool failed = false;
    if (!PyArg_ParseTuple(args, "LO", &ns, &receive)) return NULL;
    while (s->counts[SENT] || s->counts[BEGINS]) {
        int64_t key = next_key(s, ns, receive, &failed);
        if (failed) return NULL;
        int row = key < 0 || !s->direct ? NONE : row_of_key(s, key);
        if (row == NONE || !settle(s, key, take(s, row, key, false)))
            return PyErr_Occurred() ? NULL : PyLong_FromLongLong(key);
    }
    Py_RETURN_NONE;
}

/* ---- Send ---- */

static bool is_action(const struct steps *s, const void *data, shmb_dtype dtype) {
    if (!s->actions) return true;
    shmb_number n = shmb_number_at(data, dtype);
    return n.form == SHMB_WHOLE && n.i >= s->first_action && n.i - s->first_action < s->actions;
}

/* What goes wrong shows when the compiler's next request is waited for. */
static void reply(struct steps *s, Py_ssize_t row, shmb_tensor *t) {
    struct row *r = &s->rows[row];
    t->name = r->trainer_announced ? "advice" : "learner";
    r->unwoken = r->key;
    shmb_host_reply(s->host, r->key, SHMB_UNWOKEN, t, 1);
    set_state(s, row, SENT);
}

static void wake(struct steps *s, struct row *r) {
    if (r->unwoken != NONE) shmb_host_wake_runner(s->host, r->unwoken);
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
    size_t bytes = (size_t)t.size * shmb_dtype_size(t.dtype);
    const char *data = all.tensor.data;
    for (Py_ssize_t i = 0; i < s->count && wrong == s->count; i++)
        if (s->rows[i].state == OPEN && !is_action(s, data + (size_t)i * bytes, t.dtype)) wrong = i;
    for (Py_ssize_t i = 0; i < s->count && wrong == s->count; i++) {
        t.data = data + (size_t)i * bytes;
        if (s->rows[i].state == OPEN) reply(s, i, &t);
    }
    /* After all replies: a runner that is woken may take this CPU (bench steps, loops). */
    for (Py_ssize_t i = 0; i < s->count; i++) wake(s, &s->rows[i]);
    fast_release_values(&all, 1);
    if (wrong == s->count) Py_RETURN_NONE;
    return PyLong_FromSsize_t(wrong);
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
    set_state(s, row, (enum state)state);
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

/* row(row) -> (state, key or -1, announced, reports, rewarded) */
static PyObject *steps_row(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "n", &row) || !is_row(s, row)) return NULL;
    const struct row *r = &s->rows[row];
    return Py_BuildValue("iLiii", (int)r->state, (long long)r->key, (int)r->trainer_announced,
                         (int)r->reports_rewards, (int)r->rewarded);
}

/* channels(row) -> [(channel, does its runner have it still?)] */
static PyObject *steps_channels(PyObject *self, PyObject *args) {
    struct steps *s = (struct steps *)self;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "n", &row) || !is_row(s, row)) return NULL;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < MAX_CHANNELS; i++) {
        if (s->channels[i].row != row) continue;
        bool there = s->channels[i].claim == shmb_host_claim(s->host, i);
        if (!fast_append(list, Py_BuildValue("(iO)", i, there ? Py_True : Py_False)))
            Py_CLEAR(list);
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
    if (!(s->early = PyList_New(0))) goto fail;
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
    Py_XDECREF(s->early);
    freefunc release = (freefunc)PyType_GetSlot(self_type, Py_tp_free);
    release(self);
    Py_DECREF(self_type);
}

static PyMemberDef members[] = {
    {"begins", T_PYSSIZET, offsetof(struct steps, counts[BEGINS]), READONLY, NULL},
    {"under_way", T_PYSSIZET, offsetof(struct steps, counts[SENT]), READONLY, NULL},
    {"ended", T_PYSSIZET, offsetof(struct steps, ended), 0, NULL},
    {"first_action", T_LONGLONG, offsetof(struct steps, first_action), 0, NULL},
    {"actions", T_LONGLONG, offsetof(struct steps, actions), 0, NULL},
    {"compilations", T_BOOL, offsetof(struct steps, compilations), 0, NULL},
    {"direct", T_BOOL, offsetof(struct steps, direct), 0, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef methods[] = {{"shape", steps_shape, METH_O, NULL},
                                {"unassign", steps_unassign, METH_O, NULL},
                                {"take", steps_take, METH_VARARGS, NULL},
                                {"wait", steps_wait, METH_VARARGS, NULL},
                                {"send", steps_send, METH_O, NULL},
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

#define NAMED(name) {#name, name}
int fast_add_steps(PyObject *module) {
    static const struct {
        const char *name;
        long value;
    } names[] = {NAMED(IDLE),    NAMED(BEGINS),  NAMED(OPEN),         NAMED(SENT),
                 NAMED(UNKNOWN), NAMED(TAKEN),   NAMED(ADVICE_ALONE), NAMED(REPORTS_REWARDS),
                 NAMED(ENDED),   NAMED(FOREIGN), NAMED(ANOTHER),      NAMED(WRONG)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (PyModule_AddIntConstant(module, names[i].name, names[i].value)) return -1;
    return fast_add_class(module, &spec, NULL);
}
