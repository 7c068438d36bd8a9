/* LLVM's interactive channel. A header line names the tensors; then each observation is a question and its answer the
 * advice's raw bytes. A compiler that gets none, or one that it did not foresee, spins, blocks or crashes: so every question gets an
 * answer, and every answer is checked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"
#include "spec.h"

enum {
    LONGEST_LINE = 1 << 20,
    LONGEST_OBSERVATION = 1 << 30,
    RANGES = 33,          /* live ranges that an eviction chooses from */
    DECLINED = RANGES - 1 /* the one that asks: evict none */
};

enum decision { OTHER, INLINING, EVICTION, PRIORITY };

struct llvm {
    struct spec spec;       /* of the header; without advice before there is one */
    enum decision decision; /* which advice is asked for */
    const struct spec_field
        *hint; /* the feature that the default and the checks need; NULL: not sent */
    size_t hint_at;
    bool talking;         /* a header has come */
    bool observing;       /* tensors come next, else a line */
    bool given_up;        /* the rest of the conversation is not asked */
    struct bytes part;    /* what came of a line or of tensors so far */
    struct bytes context; /* the function's name */
    uint64_t allowed;     /* indices that this eviction may advise */
    int64_t hinted;       /* inlining_default, li_size: of this observation */
    bool chosen;
    double fallback; /* what the user chose */
    uint64_t conversations, asked, defaulted;
    struct error first; /* why a default was advised */
};

/* ---- Bytes to questions ---- */

/* All of the next line or of the next tensors, with the newline; NULL when more bytes are needed or *e says what is wrong. */
static const uint8_t *gather(struct llvm *s, const uint8_t *bytes, size_t size, size_t *used,
                             size_t *length, struct error *e) {
    const uint8_t *from = bytes + *used;
    size_t there = size - *used, more = 0;
    bool whole;
    if (s->observing) {
        more = s->spec.bytes + 1 - s->part.size;
        whole = more <= there;
    } else {
        const uint8_t *newline = there ? memchr(from, '\n', there) : NULL;
        whole = newline;
        if (newline) more = (size_t)(newline - from) + 1;
    }
    if (!whole) more = there;
    *used += more;
    if (!s->observing && s->part.size + more > LONGEST_LINE) {
        fail(e, SHMB_CORRUPT,
             "the compiler sent a line of more than %d bytes: is this LLVM's interactive channel?",
             LONGEST_LINE);
        return NULL;
    }
    if (whole && !s->part.size) return *length = more, from;
    uint8_t *to = more ? bytes_add(&s->part, more) : NULL;
    if (to) memcpy(to, from, more);
    else if (more)
        fail(e, SHMB_NO_MEMORY, "no memory for %zu bytes from the compiler", s->part.size + more);
    if (!whole || e->status) return NULL;
    *length = s->part.size;
    s->part.size = 0; /* its bytes stay until the next come */
    return s->part.data;
}

static enum decision decision_of(const struct spec_field *advice) {
    if (advice->size != 1) return OTHER;
    if (advice->dtype == SHMB_INT64 && strcmp(advice->name, "inlining_decision") == 0)
        return INLINING;
    if (advice->dtype == SHMB_INT64 && strcmp(advice->name, "index_to_evict") == 0) return EVICTION;
    return advice->dtype == SHMB_FLOAT32 && strcmp(advice->name, "priority") == 0 ? PRIORITY
                                                                                  : OTHER;
}

/* Which feature tells the default. */
static void find_hint(struct llvm *s) {
    static const char *const names[] = {NULL, "inlining_default", "mask", "li_size"};
    const char *name = names[s->decision];
    s->hint = NULL;
    s->hint_at = 0;
    for (uint32_t i = 0; name && i < s->spec.count && !s->hint; i++) {
        const struct spec_field *f = &s->spec.features[i];
        bool fits = f->dtype == SHMB_INT64 && f->size == (s->decision == EVICTION ? RANGES : 1);
        if (fits && strcmp(f->name, name) == 0) s->hint = f;
        else s->hint_at += f->bytes;
    }
}

static shmb_status read_header(struct llvm *s, const uint8_t *line, size_t size, struct error *e) {
    spec_free(&s->spec);
    memset(&s->spec, 0, sizeof s->spec);
    s->hint = NULL;
    s->context.size = 0;
    if (spec_read(&s->spec, line, size, e)) return e->status;
    if (!s->spec.has_advice) return fail(e, SHMB_CORRUPT, "the compiler's header names no advice");
    if (s->spec.bytes >= LONGEST_OBSERVATION || s->spec.advice.bytes >= LONGEST_OBSERVATION)
        return fail(e, SHMB_CORRUPT, "the compiler's header tells of more than %d bytes",
                    LONGEST_OBSERVATION);
    s->decision = decision_of(&s->spec.advice);
    find_hint(s);
    s->conversations += !s->talking;
    s->talking = true;
    return SHMB_OK;
}

static shmb_status read_context(struct llvm *s, const struct json_text *context, struct error *e) {
    s->context.size = 0;
    char *to = bytes_add(&s->context, context->size + 1);
    if (!to)
        return fail(e, SHMB_NO_MEMORY, "no memory for a function's name of %zu bytes",
                    context->size);
    json_copy(context, to);
    s->context.size = context->size;
    return SHMB_OK;
}

static shmb_status read_line(struct llvm *s, const uint8_t *text, size_t size, struct error *e) {
    struct line line;
    if (line_read(&line, text, size, e)) return e->status;
    switch (line.kind) {
    case LINE_HEADER: return read_header(s, text, size, e);
    case LINE_CONTEXT: return read_context(s, &line.context, e);
    case LINE_OBSERVATION:
        if (!s->spec.has_advice)
            return fail(
                e, SHMB_CORRUPT,
                "the compiler sent an observation before the header that tells its tensors");
        s->observing = true;
        return SHMB_OK;
    case LINE_OTHER: break;
    }
    return SHMB_OK;
}

/* Keeps what the default and the checks of this observation's advice need. */
static void take_hint(struct llvm *s, const uint8_t *tensors) {
    int64_t values[RANGES];
    s->hinted = 0;
    s->allowed = ((uint64_t)1 << RANGES) - 1;
    if (!s->hint) return;
    memcpy(values, tensors + s->hint_at, s->hint->bytes);
    s->hinted = values[0];
    if (s->decision != EVICTION) return;
    s->allowed = 0;
    for (int i = 0; i < RANGES; i++) s->allowed |= (uint64_t)(values[i] != 0) << i;
}

static void fill(const struct llvm *s, const uint8_t *tensors, shmb_runner *r) {
    for (uint32_t i = 0; i < s->spec.count; i++) {
        const struct spec_field *f = &s->spec.features[i];
        shmb_set(r, f->name, f->dtype, f->rank, f->dims, tensors);
        tensors += f->bytes;
    }
    shmb_set_string(r, "context", s->context.size ? (const char *)s->context.data : "",
                    (int64_t)s->context.size);
    shmb_set_string(r, "decision", s->spec.advice.name, -1);
}

static int llvm_feed(void *state, const uint8_t *bytes, size_t size, size_t *used, shmb_runner *r,
                     shmb_dtype *want, struct error *e) {
    struct llvm *s = state;
    const uint8_t *whole;
    size_t length;
    *used = 0;
    e->status = SHMB_OK;
    while ((whole = gather(s, bytes, size, used, &length, e))) {
        if (!s->observing) {
            if (read_line(s, whole, length, e)) return (int)e->status;
            continue;
        }
        s->observing = false;
        if (whole[length - 1] != '\n')
            return (int)fail(
                e, SHMB_CORRUPT,
                "expected a newline behind an observation's %zu bytes of tensors, found byte %d",
                length - 1, whole[length - 1]);
        take_hint(s, whole);
        *want = s->spec.advice.dtype;
        if (s->given_up) return GIVEN;
        if (r) fill(s, whole, r);
        return ASK;
    }
    return e->status ? (int)e->status : MORE;
}

/* ---- Advice to bytes ---- */

/* Would the compiler take it? */
static bool valid(const struct llvm *s, const void *advice) {
    int64_t index;
    float priority;
    switch (s->decision) {
    case INLINING: memcpy(&index, advice, sizeof index); return index == 0 || index == 1;
    case EVICTION:
        memcpy(&index, advice, sizeof index);
        return index >= 0 && index < RANGES && s->allowed >> index & 1;
    case PRIORITY: memcpy(&priority, advice, sizeof priority); return isfinite(priority);
    case OTHER: break;
    }
    return true;
}

static shmb_status invalid(const struct llvm *s, const void *advice, struct error *e) {
    int64_t index = 0;
    if (s->decision == PRIORITY)
        return fail(e, SHMB_INVALID, "the advice for priority is not a finite number");
    memcpy(&index, advice, sizeof index);
    return s->decision == INLINING
               ? fail(e, SHMB_INVALID, "the advice for inlining_decision is %lld: expected 0 or 1",
                      (long long)index)
               : fail(e, SHMB_INVALID,
                      "the advice for index_to_evict is %lld: expected 0 to %d where mask is not 0",
                      (long long)index, DECLINED);
}

/* Any shape of one element will do for one. */
static bool fits(const struct spec_field *f, const shmb_tensor *t) {
    bool same = t->rank == f->rank &&
                (!t->rank || memcmp(t->dims, f->dims, (size_t)t->rank * sizeof *t->dims) == 0);
    return t->kind == SHMB_TENSOR && t->dtype == f->dtype && t->size == f->size &&
           (f->size == 1 || same);
}

/* The runner's advice, if the compiler may have it. */
static shmb_status take_advice(const struct llvm *s, shmb_runner *r, void *to, struct error *e) {
    const struct spec_field *f = &s->spec.advice;
    shmb_tensor t;
    if (shmb_advice(r, NULL, &t)) return fail(e, SHMB_MISMATCH, "%s", shmb_error_message(r));
    if (!fits(f, &t))
        return fail(
            e, SHMB_MISMATCH,
            "expected advice for %.100s of dtype %s with %lld elements, found \"%.100s\" of dtype %s with %lld",
            f->name, shmb_dtype_name(f->dtype), (long long)f->size, t.name,
            shmb_dtype_name(t.dtype), (long long)t.size);
    if (f->bytes) memcpy(to, t.data, f->bytes);
    return valid(s, to) ? SHMB_OK : invalid(s, to, e);
}

/* What the user chose, where the compiler may have that now. */
static bool take_fallback(const struct llvm *s, void *to) {
    const struct spec_field *f = &s->spec.advice;
    double value = f->dtype == SHMB_FLOAT32 ? (double)(float)s->fallback : s->fallback;
    return s->chosen && f->size == 1 && shmb_convert_f64(value, f->dtype, to) && valid(s, to);
}

static void take_default(const struct llvm *s, void *to) {
    int64_t index = s->decision == INLINING &&
                    s->hinted == 1; /* as LLVM would, where it says so; 19 always says 0 */
    float priority = (float)s->hinted;
    if (take_fallback(s, to)) return;
    if (s->decision == EVICTION)
        for (index = DECLINED; index && s->allowed && !(s->allowed >> index & 1);) index--;
    memset(to, 0, s->spec.advice.bytes);
    if (s->decision == PRIORITY) memcpy(to, &priority, sizeof priority);
    else if (s->decision != OTHER) memcpy(to, &index, sizeof index);
}

/* Would the next question fare the same, or take the whole deadline again? */
static bool is_final(shmb_status status) {
    return status == SHMB_TIMEOUT || status == SHMB_HOST_GONE || status == SHMB_CLOSED ||
           status == SHMB_CORRUPT;
}

static shmb_status llvm_answer(void *state, shmb_runner *r, shmb_status status, struct bytes *out) {
    struct llvm *s = state;
    struct error e = {.status = status};
    if (!s->spec.has_advice) return SHMB_INVALID; /* nothing was asked */
    void *to = bytes_add(out, s->spec.advice.bytes);
    if (!to) return s->spec.advice.bytes ? SHMB_NO_MEMORY : SHMB_OK;
    s->asked++;
    if (!s->given_up && (status || !r))
        fail(&e, status ? status : SHMB_NO_HOST, "%s",
             r && *shmb_error_message(r) ? shmb_error_message(r)
                                         : shmb_strerror(status ? status : SHMB_NO_HOST));
    else if (!s->given_up) take_advice(s, r, to, &e);
    if (!s->given_up && !e.status) return SHMB_OK;
    if (!s->first.status) s->first = e;
    s->given_up |= is_final(e.status);
    s->defaulted++;
    take_default(s, to);
    return SHMB_OK;
}

/* ---- Life ---- */

static bool llvm_end(void *state) {
    struct llvm *s = state;
    bool whole = !s->observing && !s->part.size;
    spec_free(&s->spec);
    memset(&s->spec, 0, sizeof s->spec);
    s->hint = NULL;
    s->part.size = s->context.size = 0;
    s->talking = s->observing = s->given_up = false;
    return whole;
}

static void llvm_info(const void *state, shmb_line_info *out) {
    const struct llvm *s = state;
    out->conversations += s->conversations;
    out->asked += s->asked;
    out->defaulted += s->defaulted;
    if (out->status || !s->first.status) return;
    out->status = s->first.status;
    out->why = s->first.message;
}

static void llvm_free(void *state) {
    struct llvm *s = state;
    spec_free(&s->spec);
    bytes_free(&s->part);
    bytes_free(&s->context);
    free(s);
}

void *llvm_new(const char *fallback, struct error *e) {
    struct json_number number = {0};
    struct json j;
    json_start(&j, fallback, strlen(fallback));
    bool chosen = *fallback;
    if (chosen && (!json_number(&j, &number) || !json_end(&j) || !isfinite(number.value))) {
        fail(e, SHMB_INVALID,
             "the default advice \"%.60s\" is no finite number: expected one such as 0 or 0.5",
             fallback);
        return NULL;
    }
    struct llvm *s = calloc(1, sizeof *s);
    if (!s) {
        fail(e, SHMB_NO_MEMORY, "no memory for a conversation");
        return NULL;
    }
    s->chosen = chosen;
    s->fallback = number.value;
    return s;
}

const struct protocol llvm_protocol = {.feed = llvm_feed,
                                       .answer = llvm_answer,
                                       .end = llvm_end,
                                       .info = llvm_info,
                                       .free = llvm_free,
                                       .resumes = true};
