/* Reading the advice that came. */
#include <string.h>

#include "message/convert.h"
#include "message/dtype.h"
#include "runner/default.h"
#include "runner/runner.h"

/* ---- One number ---- */

/* Bytes alone are one number of 8 bytes where they could be two of 4, since one is asked for. */
static void widen(const shmb_runner *r, shmb_tensor *t) {
    if (!r->untyped || t->size != 2 || shmb_dtype_size(t->dtype) != 4) return;
    t->dtype = t->dtype == SHMB_FLOAT32 ? SHMB_FLOAT64 : SHMB_INT64;
    t->size = 1;
}

static shmb_status read_number(shmb_runner *r, shmb_tensor *t, shmb_dtype dtype, void *out) {
    uint8_t exact[8];
    const void *from = t->data;
    widen(r, t);
    if (t->size != 1 || t->kind != SHMB_TENSOR)
        return shmb_fail(&r->error, SHMB_MISMATCH,
                         "expected advice of one element, found \"%.100s\" with %lld%s", t->name,
                         (long long)t->size,
                         t->kind == SHMB_STRING || t->kind == SHMB_STRINGS ? " bytes of text" : "");
    if (t->dtype != dtype) {
        from = exact;
        if (!shmb_default_read_as(r, dtype, exact) && shmb_convert_tensor(t, dtype, exact) >= 0)
            return shmb_fail(
                &r->error, SHMB_INEXACT,
                "the advice \"%.100s\" of %s is not exactly representable as %s: ask for %s",
                t->name, shmb_dtype_name(t->dtype), shmb_dtype_name(dtype),
                shmb_dtype_name(t->dtype));
    }
    take_copy(out, from, shmb_dtype_size(dtype));
    return SHMB_OK;
}

shmb_status shmb_evaluate_number(shmb_runner *r, shmb_dtype dtype, void *advice) {
    shmb_tensor t;
    if (r && (!advice || dtype == SHMB_ANY)) {
        shmb_runner_begin(r);
        if (!r->stuck.status && !advice) shmb_runner_no_result(&r->stuck);
        else if (!r->stuck.status) shmb_runner_no_dtype(&r->stuck, dtype);
    }
    shmb_status status = shmb_evaluate_as(r, dtype);
    if (status) return status;
    r->advice(r, 0, &t);
    status = read_number(r, &t, dtype, advice);
    return status ? shmb_runner_failed(r, status) : SHMB_OK;
}

/* ---- By index or name ---- */

int64_t shmb_advice_count(const shmb_runner *r) { return r && r->advice ? r->advice_count : 0; }

/* Why there is nothing to read, or nowhere to put it; SHMB_OK where there is no reason. */
static shmb_status check_read(shmb_runner *r, const void *out) {
    if (!r) return SHMB_NO_MEMORY;
    if (!out) return shmb_runner_no_result(&r->error);
    if (r->advice) return SHMB_OK;
    return shmb_fail(&r->error, SHMB_INVALID, "%s: call evaluate first, and check its status",
                     r->asked ? "the last question got no advice" : "no question has been asked");
}

/* A failure to read is one of asking: a build is not to go on unseen without its model. */
static shmb_status end_read(shmb_runner *r, shmb_status status) {
    if (!status || !r) return status;
    r->stats.failures[(unsigned)status % SHMB_STATUSES]++;
    return shmb_runner_report(r, status);
}

shmb_status shmb_advice_at(shmb_runner *r, int64_t index, shmb_tensor *out) {
    shmb_status status = check_read(r, out);
    int64_t count = shmb_advice_count(r);
    if (!status && (index < 0 || index >= count))
        status = shmb_fail(&r->error, SHMB_INVALID,
                           "there is no advice %lld: the last evaluate gave %lld", (long long)index,
                           (long long)count);
    if (!status) r->advice(r, (uint32_t)index, out);
    return end_read(r, status);
}

static shmb_status find(shmb_runner *r, const char *name, shmb_tensor *out) {
    shmb_status status = check_read(r, out);
    if (status) return status;
    int64_t count = shmb_advice_count(r);
    if (!name && count == 1) return shmb_advice_at(r, 0, out);
    char names[256] = "";
    for (int64_t i = 0; i < count; i++) {
        shmb_tensor t;
        r->advice(r, (uint32_t)i, &t);
        if (name && strcmp(t.name, name) == 0) {
            *out = t;
            return SHMB_OK;
        }
        shmb_list_name(names, sizeof names, t.name);
    }
    const char *one = name ? "named \"" : "of one field", *end = name ? "\"" : "";
    return shmb_fail(&r->error, SHMB_MISMATCH, "expected advice %s%.100s%s, found %lld: %s", one,
                     name ? name : "", end, (long long)count, count ? names : "none");
}

shmb_status shmb_advice(shmb_runner *r, const char *name, shmb_tensor *out) {
    return end_read(r, find(r, name, out));
}

shmb_status shmb_advice_as(shmb_runner *r, const char *name, shmb_kind kind, shmb_dtype dtype,
                           shmb_tensor *out) {
    static const char *const kinds[] = {"a tensor", "a string", "a list of strings",
                                        "a ragged list"};
    shmb_tensor t = {0};
    shmb_status status = find(r, name, out ? &t : NULL);
    if (!status && (t.kind != kind || (dtype != SHMB_ANY && t.dtype != dtype)))
        status = shmb_fail(&r->error, SHMB_MISMATCH,
                           "expected %s%s%s as advice, found \"%.100s\": %s of %lld %s",
                           (unsigned)kind <= SHMB_RAGGED ? kinds[kind] : "another kind",
                           dtype ? " of " : "", dtype ? shmb_dtype_name(dtype) : "", t.name,
                           kinds[t.kind], (long long)t.size, shmb_dtype_name(t.dtype));
    if (!status) *out = t;
    return end_read(r, status);
}

shmb_status shmb_advice_number(shmb_runner *r, const char *name, shmb_dtype dtype, void *advice) {
    shmb_tensor t;
    shmb_status status = check_read(r, advice);
    if (!status && !shmb_dtype_size(dtype)) status = shmb_runner_no_dtype(&r->error, dtype);
    if (!status) status = find(r, name, &t);
    if (!status) status = read_number(r, &t, dtype, advice);
    return end_read(r, status);
}
