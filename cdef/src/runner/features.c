/* Filling and binding a request's features. */
#include <stdlib.h>
#include <string.h>

#include "runner/runner.h"

void *shmb_runner_add(shmb_runner *r, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets) {
    if (!r) return NULL;
    shmb_runner_begin(r);
    if (r->bound && !r->stuck.status)
        shmb_fail(
            &r->stuck, SHMB_INVALID,
            "this runner's features are bound: write to the bound memory, or bind \"%.100s\" too",
            name ? name : "");
    return shmb_builder_add(&r->builder, name, dtype, kind, rank, dims, offsets);
}

void shmb_runner_copy(shmb_runner *r, const shmb_tensor *t) {
    int64_t *offsets = NULL;
    void *to = shmb_runner_add(r, t->name, t->dtype, t->kind, t->rank, t->dims, &offsets);
    if (t->offsets && offsets) put(offsets, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *offsets);
    if (to && t->size) put(to, t->data, (size_t)t->size * shmb_dtype_size(t->dtype));
}

void *shmb_feature(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                   const int64_t *dims) {
    return shmb_runner_add(r, name, dtype, SHMB_TENSOR, rank, dims, NULL);
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
    shmb_runner_begin(r);
    if (!r->stuck.status)
        shmb_fail(&r->stuck, SHMB_INVALID,
                  "\"%.100s\": expected rows >= 0, every length >= 0, and a rank of 1 to %d with "
                  "its dims",
                  name ? name : "", SHMB_MAX_RANK);
    return shmb_builder_add(&r->builder, name, dtype, SHMB_TENSOR, 1, &total, NULL);
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
    size_t bytes = shmb_dtype_size(dtype);
    void *to = shmb_feature(r, name, dtype, rank, dims);
    if (!to || r->stuck.status) return;
    for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
    if (bytes && !data)
        shmb_fail(&r->stuck, SHMB_INVALID, "\"%.100s\": expected data, found NULL", name);
    else if (bytes) put(to, data, bytes);
}

static const char no_text[] = "\"%.100s\": expected a text, found NULL";

static int64_t length_of(const char *text) { return text ? (int64_t)strlen(text) : 0; }

void shmb_set_string(shmb_runner *r, const char *name, const char *text, int64_t bytes) {
    int64_t size = bytes >= 0 ? bytes : length_of(text);
    void *to = shmb_runner_add(r, name, SHMB_UINT8, SHMB_STRING, 1, &size, NULL);
    if (!to || r->stuck.status) return;
    if (!text && bytes) shmb_fail(&r->stuck, SHMB_INVALID, no_text, name);
    else if (size) put(to, text, (size_t)size);
}

void shmb_set_strings(shmb_runner *r, const char *name, int64_t count, const char *const *texts,
                      const int64_t *bytes) {
    int64_t *lengths = count > 0 ? calloc((size_t)count, sizeof *lengths) : NULL;
    bool missing = false;
    if (r && count > 0 && !lengths) {
        shmb_runner_begin(r);
        if (!r->stuck.status)
            shmb_fail(&r->stuck, SHMB_NO_MEMORY, "\"%.100s\": no memory for %lld texts",
                      name ? name : "", (long long)count);
        return;
    }
    for (int64_t i = 0; lengths && i < count; i++) {
        const char *text = texts ? texts[i] : NULL;
        lengths[i] = bytes ? bytes[i] : length_of(text);
        missing |= !text && (lengths[i] || !bytes);
    }
    char *to = add_list(r, name, SHMB_UINT8, SHMB_STRINGS, count, lengths, 1, NULL);
    if (to && missing && !r->stuck.status) shmb_fail(&r->stuck, SHMB_INVALID, no_text, name);
    for (int64_t i = 0; to && i < count && !r->stuck.status; i++) {
        if (lengths[i]) put(to, texts[i], (size_t)lengths[i]);
        to += lengths[i];
    }
    free(lengths);
}

/* The address of a feature that is bound already, as this dtype and shape; NULL when it is not. */
static void *bound_before(const shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                          const int64_t *dims) {
    const struct builder *b = &r->builder;
    const int64_t *its_dims = b->dims;
    struct extent at = {0};
    for (uint32_t i = 0; i < b->count && shmb_field_place(&b->fields[i], its_dims, at.end, &at);
         i++) {
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
    shmb_runner_begin(r);
    bool late = r->asked || (!r->bound && r->builder.count);
    void *at = r->bound && name && (dims || !rank) && !r->stuck.status
                   ? bound_before(r, name, dtype, rank, dims)
                   : NULL;
    if (at) return at;
    if (late && !r->stuck.status)
        shmb_fail(
            &r->stuck, SHMB_INVALID,
            "\"%.100s\": bind before the first feature is filled and before the first evaluate",
            name ? name : "");
    if (!late) r->bound = true;
    at = shmb_builder_add(&r->builder, name, dtype, SHMB_TENSOR, rank, dims, NULL);
    /* every request would lack it */
    if (!late && r->stuck.status && !r->broken.status) r->broken = r->stuck;
    return at;
}
