#include "steps.h"

#include <stdlib.h>
#include <string.h>

static const char *const report_fields[FIELDS] = {"reward", "done", "truncated", "step", "agent"};

/* ---- What a message is made of ---- */

/* A number of any dtype, whole for "step"; or the agent's name. */
static bool is_report(const shmb_tensor *t, enum report_field which) {
    const uint64_t zeros[2] = {0};
    if (which == AGENT) return t->kind == SHMB_STRING;
    return t->kind == SHMB_TENSOR && t->size == 1 &&
           (which != STEP || shmb_number_at(zeros, t->dtype).form != SHMB_REAL);
}

static bool is_feature(const shmb_tensor *t, const struct feature *f) {
    return t->kind == SHMB_TENSOR && t->dtype == f->dtype && t->rank == f->rank &&
           memcmp(t->dims, f->dims, (size_t)f->rank * sizeof *f->dims) == 0;
}

/* Puts a tensor in its place; false where it has none. */
static bool place(const struct steps *s, struct plan *p, const shmb_message *m, int t) {
    const shmb_tensor *tensor = &m->tensors[t];
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(tensor->name, report_fields[i]) == 0) {
            p->fields[i] = t;
            return is_report(tensor, (enum report_field)i);
        }
    for (Py_ssize_t i = 0; i < s->features_count; i++)
        if (strcmp(tensor->name, s->features[i].name) == 0) {
            p->columns[i] = t;
            return is_feature(tensor, &s->features[i]);
        }
    p->payload = true;
    return tensor->kind != SHMB_TENSOR || strncmp(tensor->name, "reward.", 7) == 0;
}

static void make_plan(const struct steps *s, struct plan *p, const shmb_message *m) {
    Py_ssize_t found = 0;
    for (int i = 0; i < FIELDS; i++) p->fields[i] = NONE;
    for (Py_ssize_t i = 0; i < s->features_count; i++) p->columns[i] = NONE;
    p->payload = false;
    p->fits = true;
    for (int t = 0; t < m->count; t++) p->fits = place(s, p, m, t) && p->fits;
    for (Py_ssize_t i = 0; i < s->features_count; i++) found += p->columns[i] != NONE;
    p->no_observation = !found && p->fields[STEP] != NONE;
    p->fits = p->fits && (found == s->features_count || p->no_observation);
}

const struct plan *fast_plan_of(struct steps *s, struct row *r, int64_t key,
                                const shmb_message *m) {
    struct plan **at = &r->plans[key & (SLOTS - 1)], *p = *at;
    if (p && p->key == key) return p;
    if (!p) *at = p = malloc(sizeof *p + (size_t)s->features_count * sizeof *p->columns);
    if (!p) return NULL;
    make_plan(s, p, m);
    p->key = key;
    return p;
}

static void forget_plans(struct steps *s) {
    for (Py_ssize_t i = 0; i < s->count; i++)
        for (int j = 0; j < SLOTS; j++) {
            free(s->rows[i].plans[j]);
            s->rows[i].plans[j] = NULL;
        }
}

/* ---- The arrays ---- */

void fast_forget_shape(struct steps *s) {
    forget_plans(s);
    for (Py_ssize_t i = 0; i < s->features_count; i++) {
        PyBuffer_Release(&s->features[i].rows);
        free(s->features[i].name);
    }
    free(s->features);
    s->features = NULL;
    s->features_count = 0;
}

bool fast_rows_of(PyObject *array, Py_ssize_t rows, Py_buffer *out) {
    if (PyObject_GetBuffer(array, out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT))
        return false;
    if (out->ndim && out->shape[0] == rows) return true;
    PyBuffer_Release(out);
    PyErr_Format(PyExc_ValueError, "expected arrays of %zd rows", rows);
    return false;
}

static bool add_feature(struct steps *s, PyObject *name, PyObject *array) {
    struct feature *f = &s->features[s->features_count];
    struct value value;
    const char *text = fast_name(name);
    if (!text || !fast_array(array, &value)) {
        PyErr_SetString(PyExc_TypeError, "expected arrays of rows, by name");
        return false;
    }
    f->dtype = value.tensor.dtype;
    f->rank = value.tensor.rank - 1;
    fast_release_values(&value, 1);
    if (!fast_rows_of(array, s->count, &f->rows)) return false;
    for (int i = 0; i < f->rank; i++) f->dims[i] = f->rows.shape[i + 1];
    f->bytes = (size_t)(f->rows.len / s->count);
    f->name = strdup(text);
    s->features_count++;
    return f->name;
}

bool fast_shape(struct steps *s, PyObject *features) {
    PyObject *name, *array;
    fast_forget_shape(s);
    s->features = calloc((size_t)PyDict_Size(features) + 1, sizeof *s->features);
    bool added = s->features;
    for (Py_ssize_t at = 0; added && PyDict_Next(features, &at, &name, &array);)
        added = add_feature(s, name, array);
    if (!added && !PyErr_Occurred()) PyErr_NoMemory();
    return added;
}
