/* Steps: the episodes of n compilers, and all rules of what a request means to them. Actions go out
 * and requests come in with no Python object for either: features are copied into rows of the
 * caller's arrays. Python copies what lies in no array (texts, lists), and says whose an unknown
 * runner is. */
#ifndef STEPS_H
#define STEPS_H

#include "fastpath.h"
#include "segment/limits.h"

enum { SLOTS = 1 << SHMB_KEY_SLOT_BITS, NONE = -1 };
/* No episode; waits for its first request; waits for an action; the action is under way. */
enum state { IDLE, BEGINS, OPEN, SENT, STATES };
enum reports { UNKNOWN, ADVICE_ALONE, REPORTS_REWARDS };
/* What becomes of a request. Nothing was done with those from FOREIGN on. */
enum verdict {
    TAKEN,   /* its row waits for an action */
    ENDED,   /* taken; it was the last of an episode, and wants a reply that nobody reads */
    EARLY,   /* its row waits for no request: it is looked at again */
    FOREIGN, /* in the middle of an episode that did not begin here */
    ANOTHER, /* begins another episode of a compiler that says when one is over */
    WRONG,   /* its observation is not as the others, or its report no numbers */
    PAYLOAD, /* Python is to copy some of it first */
    GONE     /* its runner has */
};
/* What a message has besides features: numbers, then a text. */
enum report_field { REWARD, DONE, TRUNCATED, STEP, AGENT, FIELDS, NUMBERS = AGENT };
/* Where the tensors of all messages of a key are. */
struct plan {
    int64_t key;
    bool fits;           /* it has all columns, or none (no_observation), and a proper report */
    bool no_observation; /* a report may have no observation */
    bool payload;        /* it has texts, lists, or agents' own rewards, too */
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
    bool rewarded;          /* a report had a reward */
    bool between;           /* an episode of the compilation has ended, the next not begun */
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
    PyObject *early;               /* a list of keys */
    Py_ssize_t counts[STATES];     /* of rows */
    Py_ssize_t ended;              /* episodes, since Python last set it */
    int64_t first_action, actions; /* 0 actions: anything is one */
    char compilations;             /* a row's episode lasts as long as its compilation */
    char direct;                   /* the host's messages are as they came: C replies, too */
};

/* ---- steps_plan.c ---- */

/* What the row's messages of that key are made of; NULL: no memory. */
const struct plan *fast_plan_of(struct steps *s, struct row *r, int64_t key, const shmb_message *m);
/* A writable array of so many rows; false with the exception set. */
bool fast_rows_of(PyObject *array, Py_ssize_t rows, Py_buffer *out);
/* From now on observations go to these arrays, by name; false with the exception set. */
bool fast_shape(struct steps *s, PyObject *features);
void fast_forget_shape(struct steps *s);

#endif
