#include "local.h"

#include <stdlib.h>
#include <string.h>

/* What a model holds is its own business: only that it must not be asked any more is ours. */
static void in_child(struct inherited *handle) { (void)handle; }

bool local_open(struct local *l, shmb_runner *r) {
    if (!memory_reserve(&l->request)) return false;
    fork_hold();
    fork_watch(&l->inherited, in_child);
    fork_let_go();
    r->forked = &l->inherited.forked;
    return true;
}

void local_close(struct local *l) {
    fork_forget(&l->inherited);
    memory_release(&l->request);
    free(l->layout);
    free(l->retired);
    free(l->dims);
}

void local_begin(shmb_runner *r) {
    struct local *l = r->kind_state;
    memory_trim(&l->request, r->builder.used);
    builder_start(&r->builder, l->request.base, l->request.room, l->layout);
}

int local_proceed(shmb_runner *r, int64_t until) {
    (void)r, (void)until;
    return SHMB_OK;
}

void local_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct local *l = r->kind_state;
    *out = l->advice[index];
}

void local_abandon(shmb_runner *r) { (void)r; }

const shmb_tensor *local_features(shmb_runner *r) {
    struct local *l = r->kind_state;
    struct builder *b = &r->builder;
    /* what is bound cannot change */
    l->same = l->layout && (b->guess == l->layout || r->bound) && b->count == l->layout->count;
    if (!l->same) {
        if (runner_check_names(r)) return NULL;
        free(l->retired);
        l->retired = l->layout;
        l->layout = layout_copy(b->fields, b->count); /* NULL only makes the next request slower */
    }
    r->error.status = SHMB_OK;
    size_t bytes = b->dim_count * sizeof *b->dims;
    l->still = l->same && l->from && l->from == b->dims && memcmp(l->dims, b->dims, bytes) == 0;
    if (l->still) return b->tensors;
    l->from = NULL;
    const shmb_tensor *features = builder_tensors(b);
    if (!features) return fail(&r->error, SHMB_NO_MEMORY, "no memory for a request"), NULL;
    int64_t *dims = l->same && b->dims ? realloc(l->dims, bytes + 1)
                                       : NULL; /* a first request's names are gone with it */
    if (dims) {
        l->dims = memcpy(dims, b->dims, bytes);
        l->from = b->dims;
    }
    return features;
}

void local_answer(shmb_runner *r, const shmb_tensor *advice, uint32_t count) {
    struct local *l = r->kind_state;
    l->advice = advice;
    r->advice_count = count;
    if (count) r->advice_dtype = advice->dtype;
}
