#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "default.h"
#include "host.h"
#include "ring.h"
#include "wait.h"

/* ---- Fill ---- */

static const char was_inherited[] =
    "this runner was inherited through fork: open another in the child";

static bool is_inherited(const shmb_runner *r) { return *r->forked; }

shmb_runner *runner_new(void) {
    static const volatile bool never;
    shmb_runner *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->builder.error = &r->stuck;
    r->forked = &never; /* what did not open */
    return r;
}

void runner_begin(shmb_runner *r) {
    bool inherited =
        is_inherited(r); /* then even a message that was begun before may not be written to */
    if (r->filling && (!inherited || r->stuck.status)) return;
    r->filling = true;
    if (!r->broken.status && !inherited) {
        r->kind->begin(r);
        return;
    }
    builder_start(&r->builder, NULL, 0, NULL);
    if (r->broken.status) r->stuck = r->broken;
    else fail(&r->stuck, SHMB_FORKED, was_inherited);
}

void *shmb_runner_add(shmb_runner *r, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets) {
    if (!r) return NULL;
    runner_begin(r);
    if (r->bound && !r->stuck.status)
        fail(&r->stuck, SHMB_INVALID,
             "this runner's features are bound: write to the bound memory, or bind \"%.100s\" too",
             name ? name : "");
    return builder_add(&r->builder, name, dtype, kind, rank, dims, offsets);
}

void *shmb_feature(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                   const int64_t *dims) {
    return shmb_runner_add(r, name, dtype, SHMB_TENSOR, rank, dims, NULL);
}

float *shmb_feature_f32(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_FLOAT32, 1, &n);
}
double *shmb_feature_f64(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_FLOAT64, 1, &n);
}
int32_t *shmb_feature_i32(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_INT32, 1, &n);
}
int64_t *shmb_feature_i64(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_INT64, 1, &n);
}
uint8_t *shmb_feature_u8(shmb_runner *r, const char *name, int64_t n) {
    return shmb_feature(r, name, SHMB_UINT8, 1, &n);
}

/* Sums lengths into the values' first dim; false when one is negative or the sum overflows. */
static bool sum_lengths(const int64_t *lengths, int64_t rows, int64_t *total) {
    *total = 0;
    for (int64_t i = 0; i < rows; i++)
        if (lengths[i] < 0 || __builtin_add_overflow(*total, lengths[i], total)) return false;
    return rows >= 0;
}

/* A list that cannot be: says so, and gives private memory for the values all the same. */
static void *refuse_list(shmb_runner *r, const char *name, shmb_dtype dtype, int64_t total) {
    runner_begin(r);
    if (!r->stuck.status)
        fail(
            &r->stuck, SHMB_INVALID,
            "\"%.100s\": expected rows >= 0, every length >= 0, and a rank of 1 to %d with its dims",
            name ? name : "", SHMB_MAX_RANK);
    return builder_add(&r->builder, name, dtype, SHMB_TENSOR, 1, &total, NULL);
}

static void *add_list(shmb_runner *r, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int64_t rows, const int64_t *lengths, int32_t rank, const int64_t *dims) {
    int64_t all[MAX_DIMS] = {rows}, *offsets = NULL;
    bool summed = (rows <= 0 || lengths) && sum_lengths(lengths, rows, &all[1]);
    if (!r) return NULL;
    if (!summed || rank < 1 || rank > SHMB_MAX_RANK || (rank > 1 && !dims))
        return refuse_list(r, name, dtype, summed ? all[1] : 0);
    for (int i = 1; i < rank; i++) all[i + 1] = dims[i - 1];
    void *values = shmb_runner_add(r, name, dtype, kind, rank, all, &offsets);
    int64_t at = 0;
    if (!offsets) return values;
    put(offsets, &at, sizeof at);
    for (int64_t i = 0; i < rows; i++) {
        at += lengths[i];
        put(&offsets[i + 1], &at, sizeof at);
    }
    return values;
}

void *shmb_feature_ragged(shmb_runner *r, const char *name, shmb_dtype dtype, int64_t rows,
                          const int64_t *lengths, int32_t rank, const int64_t *dims) {
    return add_list(r, name, dtype, SHMB_RAGGED, rows, lengths, rank, dims);
}

void shmb_set(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank, const int64_t *dims,
              const void *data) {
    void *to = shmb_feature(r, name, dtype, rank, dims);
    size_t bytes = shmb_dtype_size(dtype);
    if (!to || !r || r->stuck.status) return;
    for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
    if (bytes && !data)
        fail(&r->stuck, SHMB_INVALID, "\"%.100s\": expected data, found NULL", name);
    else if (bytes) put(to, data, bytes);
}

void shmb_set_i64(shmb_runner *r, const char *name, int64_t value) {
    shmb_set(r, name, SHMB_INT64, 0, NULL, &value);
}
void shmb_set_f32(shmb_runner *r, const char *name, float value) {
    shmb_set(r, name, SHMB_FLOAT32, 0, NULL, &value);
}
void shmb_set_f64(shmb_runner *r, const char *name, double value) {
    shmb_set(r, name, SHMB_FLOAT64, 0, NULL, &value);
}

void shmb_set_string(shmb_runner *r, const char *name, const char *text, int64_t bytes) {
    if (bytes < 0) bytes = text ? (int64_t)strlen(text) : 0;
    void *to = shmb_runner_add(r, name, SHMB_UINT8, SHMB_STRING, 1, &bytes, NULL);
    if (!to || !bytes || r->stuck.status) return;
    if (!text) fail(&r->stuck, SHMB_INVALID, "\"%.100s\": expected a text, found NULL", name);
    else put(to, text, (size_t)bytes);
}

void shmb_set_strings(shmb_runner *r, const char *name, int64_t count, const char *const *texts,
                      const int64_t *bytes) {
    int64_t *lengths = count > 0 ? calloc((size_t)count, sizeof *lengths) : NULL;
    for (int64_t i = 0; lengths && i < count; i++)
        lengths[i] = bytes ? bytes[i] : (int64_t)strlen(texts[i]);
    char *to = add_list(r, name, SHMB_UINT8, SHMB_STRINGS, count, lengths, 1, NULL);
    for (int64_t i = 0; to && i < count && !r->stuck.status; i++) {
        if (lengths[i]) put(to, texts[i], (size_t)lengths[i]);
        to += lengths[i];
    }
    free(lengths);
}

static void forget_message(shmb_runner *r) {
    r->stuck.status = SHMB_OK;
    if (r->bound) return;
    r->filling = false;
    builder_clear(&r->builder);
}

void shmb_discard(shmb_runner *r) {
    if (r) forget_message(r);
}

/* The address of a feature that is bound already, as this dtype and shape; NULL when it is not. */
static void *bound_before(const shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                          const int64_t *dims) {
    const struct builder *b = &r->builder;
    const int64_t *its_dims = b->dims;
    struct extent at = {0};
    for (uint32_t i = 0; i < b->count && field_place(&b->fields[i], its_dims, at.end, &at); i++) {
        const struct field *f = &b->fields[i];
        if (strcmp(f->name, name) == 0 && f->dtype == dtype && f->rank == rank &&
            (!rank || memcmp(dims, its_dims, (size_t)rank * sizeof *dims) == 0))
            return b->body + at.values;
        its_dims += field_dims(f);
    }
    return NULL;
}

void *shmb_bind(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                const int64_t *dims) {
    if (!r) return NULL;
    runner_begin(r);
    bool late = r->asked || (!r->bound && r->builder.count);
    void *at = r->bound && name && (dims || !rank) && !r->stuck.status
                   ? bound_before(r, name, dtype, rank, dims)
                   : NULL;
    if (at) return at;
    if (late && !r->stuck.status)
        fail(&r->stuck, SHMB_INVALID,
             "\"%.100s\": bind before the first feature is filled and before the first evaluate",
             name ? name : "");
    r->bound = true;
    at = builder_add(&r->builder, name, dtype, SHMB_TENSOR, rank, dims, NULL);
    if (r->stuck.status && !r->broken.status) r->broken = r->stuck;
    return at;
}

/* ---- Ask ---- */

/* Out of the way of those that end well. */
__attribute__((noinline, cold)) static shmb_status failed(shmb_runner *r, shmb_status status) {
    r->advice = NULL;
    if (r->broken.status) r->error = r->broken;
    return r->default_advice ? default_take(r, status) : status;
}

static shmb_status finish(shmb_runner *r, shmb_status status) {
    if (status) status = failed(r, status);
    forget_message(r);
    return status;
}

static bool was_interrupted(shmb_runner *r) {
    if (!load_relaxed(&r->interrupted) || !atomic_exchange(&r->interrupted, 0)) return false;
    return fail(&r->error, SHMB_INTERRUPTED, "interrupted while waiting for advice");
}

shmb_status runner_check_names(shmb_runner *r) {
    const char *which, *why = names_wrong(r->builder.fields, r->builder.count, &which);
    if (!why) return SHMB_OK;
    return fail(&r->error, which ? SHMB_INVALID : SHMB_NO_MEMORY,
                "these fields make no message: %s%s%.100s", why, which ? ": " : "",
                which ? which : "");
}

shmb_status shmb_runner_start(shmb_runner *r, shmb_dtype want) {
    if (!r) return SHMB_NO_MEMORY;
    runner_begin(r);
    r->advice = NULL;
    r->asked = true;
    r->want = want;
    if ((unsigned)want > SHMB_BFLOAT16 && !r->stuck.status)
        fail(&r->stuck, SHMB_INVALID, "expected a dtype to have the advice as, found %d",
             (int)want);
    r->until = r->deadline_ns ? clock_ns() + r->deadline_ns : INT64_MAX;
    if (r->broken.status) return finish(r, r->broken.status);
    if (r->stuck.status) {
        r->error = r->stuck;
        return finish(r, r->stuck.status);
    }
    if (was_interrupted(r)) return finish(r, r->error.status);
    shmb_status status = r->kind->start(r);
    r->asking = !status;
    return status ? finish(r, status) : SHMB_OK;
}

void shmb_runner_abandon(shmb_runner *r, shmb_status status) {
    if (r->asking)
        r->kind->abandon(
            r); /* in Python, Ctrl-C may come before the question or right behind its answer */
    r->asking = false;
    finish(r, status);
}

/* The advice is one tensor or list of the wanted dtype, as asked. */
static shmb_status check_wanted(shmb_runner *r) {
    shmb_tensor t;
    if (r->want == SHMB_ANY) return SHMB_OK;
    if (r->advice_count != 1)
        return fail(
            &r->error, SHMB_MISMATCH,
            "expected one advice of dtype %s, found %u fields: ask with shmb_evaluate and read them by name",
            shmb_dtype_name(r->want), r->advice_count);
    if (r->advice_dtype == r->want) return SHMB_OK;
    r->kind->advice(r, 0, &t);
    return fail(&r->error, SHMB_MISMATCH,
                "expected advice of dtype %s, found \"%.100s\" of dtype %s",
                shmb_dtype_name(r->want), t.name, shmb_dtype_name(t.dtype));
}

int runner_wait(shmb_runner *r, int64_t until) {
    if (!r->asking) return SHMB_OK; /* the default advice was taken when it began */
    int status = is_inherited(r) ? (int)fail(&r->error, SHMB_FORKED, was_inherited)
                                 : r->kind->proceed(r, until < r->until ? until : r->until);
    if (status == PENDING && was_interrupted(r)) {
        r->kind->abandon(r);
        status = SHMB_INTERRUPTED;
    } else if (status == PENDING && r->until != INT64_MAX && clock_ns() >= r->until) {
        r->kind->abandon(r);
        status = fail(
            &r->error, SHMB_TIMEOUT,
            "no advice within the deadline of %g s: give the model more time, or take a default",
            (double)r->deadline_ns / 1e9);
    }
    if (status == PENDING) return PENDING;
    r->asking = false;
    if (status == SHMB_OK) {
        r->advice = r->kind->advice;
        status = check_wanted(r);
    }
    return finish(r, (shmb_status)status);
}

int shmb_runner_continue(shmb_runner *r) { return runner_wait(r, r->until); }

shmb_status shmb_evaluate_as(shmb_runner *r, shmb_dtype dtype) {
    int status = (int)shmb_runner_start(r, dtype);
    if (status) return (shmb_status)status;
    while ((status = shmb_runner_continue(r)) == PENDING) continue;
    return (shmb_status)status;
}

shmb_status shmb_evaluate(shmb_runner *r) { return shmb_evaluate_as(r, SHMB_ANY); }

static shmb_status evaluate_scalar(shmb_runner *r, shmb_dtype dtype, void *out) {
    shmb_tensor t;
    shmb_status status = shmb_evaluate_as(r, dtype);
    if (status) return status;
    r->advice(r, 0, &t);
    if (t.size != 1 || t.kind != SHMB_TENSOR)
        return r->advice = NULL, fail(&r->error, SHMB_MISMATCH,
                                      "expected advice of one element, found \"%.100s\" with %lld",
                                      t.name, (long long)t.size);
    memcpy(out, t.data, shmb_dtype_size(dtype));
    return SHMB_OK;
}

shmb_status shmb_evaluate_i64(shmb_runner *r, int64_t *advice) {
    return evaluate_scalar(r, SHMB_INT64, advice);
}
shmb_status shmb_evaluate_i32(shmb_runner *r, int32_t *advice) {
    return evaluate_scalar(r, SHMB_INT32, advice);
}
shmb_status shmb_evaluate_f32(shmb_runner *r, float *advice) {
    return evaluate_scalar(r, SHMB_FLOAT32, advice);
}
shmb_status shmb_evaluate_f64(shmb_runner *r, double *advice) {
    return evaluate_scalar(r, SHMB_FLOAT64, advice);
}

void shmb_set_deadline(shmb_runner *r, double seconds) {
    if (r)
        r->deadline_ns =
            seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) + (seconds < 1e-9) : 0;
}

void shmb_interrupt(shmb_runner *r) {
    if (!r) return;
    atomic_store(&r->interrupted, 1);
    if (r->kind && r->kind->interrupt) r->kind->interrupt(r);
}

int64_t shmb_defaulted(const shmb_runner *r) { return r ? r->defaulted : 0; }

/* ---- Read ---- */

int64_t shmb_advice_count(const shmb_runner *r) { return r && r->advice ? r->advice_count : 0; }

shmb_status shmb_advice_at(shmb_runner *r, int64_t index, shmb_tensor *out) {
    if (!r) return SHMB_NO_MEMORY;
    int64_t count = shmb_advice_count(r);
    if (index < 0 || index >= count)
        return fail(&r->error, SHMB_INVALID, "there is no advice %lld: the last evaluate gave %lld",
                    (long long)index, (long long)count);
    r->advice(r, (uint32_t)index, out);
    return SHMB_OK;
}

shmb_status shmb_advice(shmb_runner *r, const char *name, shmb_tensor *out) {
    if (!r) return SHMB_NO_MEMORY;
    int64_t count = shmb_advice_count(r);
    if (!name && count == 1) return shmb_advice_at(r, 0, out);
    char names[256] = "";
    for (int64_t i = 0; i < count; i++) {
        shmb_tensor t;
        r->advice(r, (uint32_t)i, &t);
        if (name && strcmp(t.name, name) == 0) return *out = t, SHMB_OK;
        size_t used = strlen(names);
        if (used + strlen(t.name) + 3 < sizeof names) strcat(strcat(names, i ? ", " : ""), t.name);
    }
    return fail(&r->error, SHMB_MISMATCH, "expected advice named \"%.100s\", found %lld: %s",
                name ? name : "(the only one)", (long long)count, count ? names : "none");
}

const char *shmb_error_message(const shmb_runner *r) {
    return r ? r->error.message : shmb_strerror(SHMB_NO_MEMORY);
}
