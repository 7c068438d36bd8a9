/* Steps: the episodes of n compilers. Their actions go out and their next requests come in with no
 * Python object for either: features are copied into rows of the caller's arrays. What is unusual
 * goes to Python by its key: another layout, texts, a runner that nobody here knows. */
#ifndef STEPS_H
#define STEPS_H

#include "fastpath.h"
#include "segment/limits.h"

enum { SLOTS = 1 << SHMB_KEY_SLOT_BITS, NONE = -1 };
/* No episode; waits for its first request; waits for an action; the action is under way. */
enum state { IDLE, BEGINS, OPEN, SENT, STATES };
enum reports { UNKNOWN, ADVICE_ALONE, REPORTS_REWARDS };
/* What a message has besides features: numbers, then a text. */
enum report_field { REWARD, DONE, TRUNCATED, STEP, AGENT, FIELDS, NUMBERS = AGENT };
/* Where the tensors of all messages of a key are. */
struct plan {
    int64_t key;
    bool fits;           /* it has all columns, or none (no_observation), and nothing unknown */
    bool no_observation; /* a report may have no observation */
    int fields[FIELDS];  /* indexes of tensors, or NONE */
    int columns[];       /* the same */
};

struct feature {
    char *name;
    shmb_dtype dtype;
    int rank;
    int64_t dims[SHMB_MAX_RANK];
    size_t bytes; /* of a row */
    Py_buffer rows;
};

struct row {
    enum state state;
    enum reports reports_rewards;
    int64_t key;            /* OPEN: of its request */
    int64_t unwoken;        /* the request whose reply is sent, but its runner not woken; NONE */
    bool trainer_announced; /* the compiler knows that there is a learner */
    struct plan *plans[SLOTS];
};

struct steps {
    PyObject_HEAD shmb_host *host;
    Py_ssize_t count;
    struct row *rows;
    struct {
        int row; /* NONE: no row's */
        int64_t claim;
    } channels[MAX_CHANNELS];
    struct feature *features;
    Py_ssize_t features_count;
    /* the caller's arrays: float64, bool, bool, int64, int64, a number each */
    Py_buffer outputs[FIELDS];
    PyObject *agents;              /* a list of bytes; an agent's number is its place */
    Py_ssize_t counts[STATES];     /* of rows */
    Py_ssize_t ended;              /* episodes so far */
    int64_t first_action, actions; /* 0 actions: anything is one */
    char defers;                   /* Python is to look at what says that an episode is over */
};

/* ---- steps_plan.c ---- */

/* What the row's messages of that key are made of; NULL: no memory. */
const struct plan *fast_plan_of(struct steps *s, struct row *r, int64_t key, const shmb_message *m);
/* The size of a number of a report. */
size_t fast_report_bytes(enum report_field which);
/* A writable array of so many rows; false with the exception set. */
bool fast_rows_of(PyObject *array, Py_ssize_t rows, Py_buffer *out);
/* From now on observations go to these arrays, by name; false with the exception set. */
bool fast_shape(struct steps *s, PyObject *features);
void fast_forget_shape(struct steps *s);

#endif
