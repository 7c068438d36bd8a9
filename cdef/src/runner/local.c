#include "runner/local.h"

#include <stdlib.h>
#include <string.h>

shmb_status shmb_local_open(struct local *l, shmb_runner *r) {
    if (!shmb_memory_reserve(&l->request))
        return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    shmb_fork_hold();
    shmb_fork_watch(&l->inherited, NULL); /* what a model holds is its own business */
    shmb_fork_let_go();
    r->forked = &l->inherited.forked;
    r->kind_state = l;
    return SHMB_OK;
}

void shmb_local_close(struct local *l) {
    shmb_fork_forget(&l->inherited);
    shmb_memory_release(&l->request);
    free(l->layout);
    free(l->retired);
    free(l->dims);
}

void shmb_local_begin(shmb_runner *r) {
    struct local *l = r->kind_state;
    shmb_memory_trim(&l->request, r->builder.used);
    shmb_builder_start(&r->builder, l->request.base, l->request.room, l->layout);
}

int shmb_local_proceed(shmb_runner *r, int64_t until) {
    (void)r, (void)until;
    return SHMB_OK;
}

void shmb_local_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct local *l = r->kind_state;
    *out = l->advice[index];
}

void shmb_local_abandon(shmb_runner *r) { (void)r; }

const char *shmb_local_asks_again(shmb_runner *r) {
    return shmb_clock_ns() < r->asks_from ? "after 16 times that long" : NULL;
}

const shmb_tensor *shmb_local_features(shmb_runner *r) {
    struct local *l = r->kind_state;
    struct builder *b = &r->builder;
    shmb_runner_until(r); /* the deadline starts before the model does */
    /* what is bound cannot change */
    l->same = l->layout && (b->guess == l->layout || r->bound) && b->count == l->layout->count;
    if (!l->same) {
        if (shmb_runner_check_names(r)) return NULL;
        free(l->retired);
        l->retired = l->layout;
        /* NULL only makes the next request slower */
        l->layout = shmb_layout_copy(b->fields, b->count);
    }
    r->error.status = SHMB_OK;
    size_t bytes = b->dim_count * sizeof *b->dims;
    l->still = l->same && l->from && l->from == b->dims && memcmp(l->dims, b->dims, bytes) == 0;
    if (l->still) return b->tensors;
    l->from = NULL;
    const shmb_tensor *features = shmb_builder_tensors(b);
    if (!features) {
        shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    /* a first request's names are gone with it */
    int64_t *dims = l->same && b->dims ? realloc(l->dims, bytes + 1) : NULL;
    if (dims) {
        l->dims = memcpy(dims, b->dims, bytes);
        l->from = b->dims;
    }
    return features;
}

void shmb_local_answer(shmb_runner *r, const shmb_tensor *advice, uint32_t count) {
    struct local *l = r->kind_state;
    l->advice = advice;
    r->advice_count = count;
    if (count) r->advice_dtype = advice->dtype;
}
