/* What LLVM is told: the advice, if the compiler may have it, and else a default. */
#include <math.h>
#include <string.h>

#include "runner/default.h"
#include "llvm/state.h"

/* the float below 2^32: LLVM makes an unsigned of it, and 22 and older wrap */
static const float HIGHEST_PRIORITY = 4294967040;

static bool valid(const struct llvm *s, const void *advice) {
    int64_t index;
    float priority;
    switch (s->decision) {
    case INLINING: memcpy(&index, advice, sizeof index); return index == 0 || index == 1;
    case EVICTION:
        memcpy(&index, advice, sizeof index);
        return index >= 0 && (uint64_t)index < s->allowed.size && s->allowed.data[index];
    case PRIORITY: memcpy(&priority, advice, sizeof priority); return isfinite(priority);
    case OTHER: break;
    }
    return true;
}

static shmb_status invalid(const struct llvm *s, const void *advice, struct error *e) {
    int64_t index = 0, last = (int64_t)s->allowed.size - 1;
    if (s->decision == PRIORITY)
        return shmb_fail(e, SHMB_INVALID, "the advice for priority is not a finite number");
    memcpy(&index, advice, sizeof index);
    if (s->decision == INLINING)
        return shmb_fail(e, SHMB_INVALID,
                         "the advice for inlining_decision is %lld: expected 0 or 1",
                         (long long)index);
    return shmb_fail(
        e, SHMB_INVALID,
        "the advice for index_to_evict is %lld: expected 0 to %lld where mask is not 0",
        (long long)index, (long long)last);
}

/* Any shape of one element will do for one. */
static bool fits(const struct spec_field *f, const shmb_tensor *t) {
    bool same = t->rank == f->rank &&
                (!t->rank || memcmp(t->dims, f->dims, (size_t)t->rank * sizeof *t->dims) == 0);
    return t->kind == SHMB_TENSOR && t->dtype == f->dtype && t->size == f->size &&
           (f->size == 1 || same);
}

/* The runner's advice, if the compiler may have it. */
static shmb_status llvm_take_advice(const struct llvm *s, shmb_runner *r, void *to,
                                    struct error *e) {
    const struct spec_field *f = &s->spec.advice;
    shmb_tensor t;
    if (shmb_advice(r, NULL, &t)) return shmb_fail(e, SHMB_MISMATCH, "%s", shmb_error_message(r));
    if (!fits(f, &t))
        return shmb_fail(e, SHMB_MISMATCH,
                         "expected advice for %.100s of dtype %s with %lld elements, found "
                         "\"%.100s\" of dtype %s with %lld",
                         f->name, shmb_dtype_name(f->dtype), (long long)f->size, t.name,
                         shmb_dtype_name(t.dtype), (long long)t.size);
    if (f->bytes) memcpy(to, t.data, f->bytes);
    return valid(s, to) ? SHMB_OK : invalid(s, to, e);
}

/* What the user chose, where the compiler may have that now. */
static bool take_fallback(const struct llvm *s, void *to) {
    const struct spec_field *f = &s->spec.advice;
    const shmb_tensor *t = s->fallback ? shmb_default_as(s->fallback, f->dtype) : NULL;
    if (!t || f->size != 1) return false;
    memcpy(to, t->data, f->bytes);
    return valid(s, to);
}

/* Where LLVM allows none, the one that asks. */
static int64_t last_allowed(const struct llvm *s) {
    int64_t last = (int64_t)s->allowed.size - 1, i = last;
    while (i >= 0 && !s->allowed.data[i]) i--;
    if (i < 0) i = last;
    return i >= 0 ? i : 0;
}

static void take_default(const struct llvm *s, void *to) {
    /* as LLVM would, where it says so; 19 always says 0 */
    int64_t index = s->decision == INLINING && s->hinted == 1;
    float priority = (float)s->hinted;
    if (take_fallback(s, to)) return;
    if (s->decision == EVICTION) index = last_allowed(s);
    memset(to, 0, s->spec.advice.bytes);
    if (s->decision == PRIORITY) memcpy(to, &priority, sizeof priority);
    else if (s->decision != OTHER) memcpy(to, &index, sizeof index);
}

/* Lower than the lowest is the lowest, as LLVM has it since 23, and higher than the highest. */
static void saturate(const struct llvm *s, void *to) {
    float priority;
    if (s->decision != PRIORITY) return;
    memcpy(&priority, to, sizeof priority);
    priority = priority < HIGHEST_PRIORITY ? priority : HIGHEST_PRIORITY;
    if (!(priority > 0)) priority = 0;
    memcpy(to, &priority, sizeof priority);
}

/* What LLVM would do without us, where it says so. */
static void take_own(const struct llvm *s, void *to) {
    int64_t inlines = s->hinted == 1;
    if (s->decision == INLINING && s->hint) memcpy(to, &inlines, sizeof inlines);
    else take_default(s, to);
}

/* Would the next question fare the same, as the last ones did, or take the whole deadline again? A
 * host that drops a question has chosen the default. */
static bool is_final(struct llvm *s, const struct error *e) {
    enum { SAME = 16 };
    shmb_status status = e->status;
    bool same = s->last.status == status && strcmp(s->last.message, e->message) == 0;
    s->times = same ? s->times + 1 : 1;
    if (!same) s->last = *e;
    return (s->times == SAME && status != SHMB_DROPPED) || status == SHMB_TIMEOUT ||
           status == SHMB_HOST_GONE || status == SHMB_CLOSED || status == SHMB_CORRUPT;
}

static void llvm_choose(struct llvm *s, shmb_runner *r, shmb_status status, void *to) {
    struct error e = {.status = status};
    s->counted.info.asked++;
    if (!r && !status) status = SHMB_NO_HOST;
    if (s->unreadable.status) e = s->unreadable;
    else if (!s->given_up && status) shmb_fail(&e, status, "%s", r ? shmb_error_message(r) : "");
    else if (!s->given_up) llvm_take_advice(s, r, to, &e);
    if (!s->given_up && !e.status) {
        s->times = 0;
        return;
    }
    if (!s->counted.first.status) s->counted.first = e;
    s->given_up |= !s->given_up && !s->unreadable.status && is_final(s, &e);
    s->unreadable.status = SHMB_OK;
    s->counted.info.defaulted++;
    take_default(s, to);
}

shmb_status shmb_llvm_answer(void *state, shmb_runner *r, shmb_status status, struct bytes *out) {
    struct llvm *s = state;
    if (!s->spec.has_advice) return SHMB_INVALID; /* nothing was asked */
    void *to = shmb_bytes_add(out, s->spec.advice.bytes);
    if (!to) return s->spec.advice.bytes ? SHMB_NO_MEMORY : SHMB_OK;
    if (s->beyond) take_own(s, to);
    else llvm_choose(s, r, status, to);
    saturate(s, to);
    s->beyond = false;
    return SHMB_OK;
}
