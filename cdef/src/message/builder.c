#include "message/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message/dtype.h"

/* The array with room for `needed` elements; NULL when there is no memory, and then the array is as
 * it was. */
static void *builder_grow(void *array, uint32_t *room, uint32_t needed, size_t size) {
    if (needed <= *room && array) return array;
    uint32_t larger = needed < 16 ? 16 : 2 * needed;
    void *moved = realloc(array, larger * size);
    if (moved) *room = larger;
    return moved;
}

static bool builder_make_room(struct builder *b, uint32_t dims) {
    struct field *fields = builder_grow(b->fields, &b->field_room, b->count + 1, sizeof *fields);
    if (fields) b->fields = fields;
    int64_t *all = builder_grow(b->dims, &b->dim_room, b->dim_count + dims, sizeof *all);
    if (all) b->dims = all;
    return fields && all;
}

void shmb_builder_clear(struct builder *b) {
    for (uint32_t i = 0; i < b->name_count; i++) free(b->names[i]);
    for (uint32_t i = 0; i < b->spill_count; i++) free(b->spill[i]);
    free(b->names);
    free(b->spill);
    b->names = NULL;
    b->spill = NULL;
    b->name_count = b->spill_count = 0;
    b->count = b->dim_count = 0;
}

void shmb_builder_free(struct builder *b) {
    shmb_builder_clear(b);
    free(b->fields);
    free(b->dims);
    free(b->tensors);
}

void shmb_builder_start(struct builder *b, uint8_t *body, size_t room, const struct layout *guess) {
    if (b->names || b->spill) shmb_builder_clear(b);
    b->count = b->dim_count = 0;
    b->used = 0;
    b->body = body;
    b->room = room;
    b->guess = guess;
}

static void *spill(struct builder *b, size_t offsets, size_t values, int64_t **out_offsets) {
    void **kept = realloc(b->spill, (b->spill_count + 1) * sizeof *kept);
    if (kept) b->spill = kept;
    size_t bytes;
    if (!kept || __builtin_add_overflow(offsets, values, &bytes) ||
        bytes > PTRDIFF_MAX - 2 * ALIGNMENT)
        return NULL;
    uint8_t *memory =
        aligned_alloc(ALIGNMENT, (bytes + 2 * ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    if (!memory) return NULL;
    b->spill[b->spill_count++] = memory;
    if (out_offsets) *out_offsets = (int64_t *)memory;
    return memory + offsets;
}

/* The field that the guess foresees next, when it is this one. */
static const struct field *foreseen(const struct builder *b, const char *name, shmb_dtype dtype,
                                    shmb_kind kind, int32_t rank) {
    if (!b->guess || b->count >= b->guess->count || !name) return NULL;
    const struct field *g = &b->guess->fields[b->count];
    return g->dtype == dtype && g->kind == kind && g->rank == rank && strcmp(g->name, name) == 0
               ? g
               : NULL;
}

/* Gives the field a copy of the name; no more guessing. */
static bool name_field(struct builder *b, struct field *f, const char *name) {
    b->guess = NULL;
    char *copy = strdup(name);
    char **names = realloc(b->names, (b->name_count + 1) * sizeof *names);
    if (names) b->names = names;
    if (!copy || !names) {
        free(copy);
        return false;
    }
    b->names[b->name_count++] = copy;
    f->name = copy;
    f->name_bytes = (uint32_t)strlen(copy);
    return true;
}

static shmb_status builder_check(struct builder *b, const char *name, shmb_dtype dtype,
                                 shmb_kind kind, int32_t rank, const int64_t *dims) {
    struct error *e = b->error;
    if (e->status) return e->status;
    if (!name || !*name)
        return shmb_fail(e, SHMB_INVALID, "a feature needs a name; found %s",
                         name ? "\"\"" : "NULL");
    if (rank < 0 || rank > SHMB_MAX_RANK)
        return shmb_fail(e, SHMB_INVALID, "\"%.100s\": expected a rank of 0 to %d, found %d", name,
                         SHMB_MAX_RANK, rank);
    if (!shmb_dtype_size(dtype))
        return shmb_fail(e, SHMB_INVALID,
                         "\"%.100s\": %d is not a dtype: expected 1 (bool) to %d (%s)", name,
                         (int)dtype, LAST_DTYPE, shmb_dtypes[LAST_DTYPE].name);
    if (!shmb_field_valid((uint8_t)dtype, (uint8_t)kind, (uint8_t)rank))
        return shmb_fail(e, SHMB_INVALID,
                         "\"%.100s\": no field has dtype %d, kind %d and rank %d together", name,
                         (int)dtype, (int)kind, rank);
    if (!dims && (rank || kind_is_list((uint8_t)kind)))
        return shmb_fail(e, SHMB_INVALID, "\"%.100s\": expected %d dims, found NULL", name, rank);
    return SHMB_OK;
}

static void *append(struct builder *b, const struct field *f, const int64_t *dims,
                    const struct extent *at, int64_t **offsets) {
    uint32_t dim_count = field_dims(f);
    b->fields[b->count++] = *f;
    for (uint32_t i = 0; i < dim_count; i++) b->dims[b->dim_count++] = dims[i];
    b->used = at->end;
    if (offsets) *offsets = (int64_t *)(b->body + at->offsets);
    return b->body + at->values;
}

/* Bytes that a caller who asks for these dims will write, whatever else is wrong with them;
 * SIZE_MAX when they overflow. */
static size_t bytes_asked(shmb_dtype dtype, int32_t rank, const int64_t *dims) {
    size_t bytes = shmb_dtype_size(dtype) ? shmb_dtype_size(dtype) : sizeof(int64_t);
    for (int i = 0; dims && i < rank; i++)
        if (dims[i] <= 0) return 0;
        else if (__builtin_mul_overflow(bytes, (size_t)dims[i], &bytes)) bytes = SIZE_MAX;
    return bytes;
}

__attribute__((noinline)) static void *add_checked(struct builder *b, const char *name,
                                                   shmb_dtype dtype, shmb_kind kind, int32_t rank,
                                                   const int64_t *dims, int64_t **offsets) {
    struct field f = {.dtype = (uint8_t)dtype, .kind = (uint8_t)kind, .rank = (uint8_t)rank};
    const struct field *g = foreseen(b, name, dtype, kind, rank);
    struct extent at = {0};
    size_t bytes = 0, offset_bytes = 0;
    bool placed = rank >= 0 && rank <= SHMB_MAX_RANK && shmb_dtype_size(dtype) &&
                  (dims || field_dims(&f) == 0) && shmb_field_place(&f, dims, b->used, &at);
    if (placed) bytes = at.end - at.values, offset_bytes = at.values - at.offsets;
    else bytes = bytes_asked(dtype, rank, dims);
    if (builder_check(b, name, dtype, kind, rank, dims))
        return spill(b, offset_bytes, bytes, offsets);
    if (!placed) {
        shmb_fail(b->error, SHMB_INVALID,
                  "\"%.100s\": expected dims of 0 or more that make 1 TiB at most, zeros counted "
                  "as ones; found others",
                  name);
        return spill(b, 0, bytes, NULL);
    }
    if (at.end > b->room) {
        char more[100] = "";
        if (b->room_option)
            snprintf(more, sizeof more, ", or give the host more room (Host(%s=...))",
                     b->room_option);
        shmb_fail(
            b->error, SHMB_TOO_LARGE,
            "\"%.100s\" ends at byte %zu of the message, but there is room for %zu: send less%s",
            name, at.end, b->room, more);
        return spill(b, offset_bytes, bytes, offsets);
    }
    if (!builder_make_room(b, field_dims(&f)) || (!g && !name_field(b, &f, name))) {
        shmb_fail(b->error, SHMB_NO_MEMORY, "no memory for another field");
        return spill(b, offset_bytes, bytes, offsets);
    }
    return append(b, g ? g : &f, dims, &at, offsets);
}

void *shmb_builder_add(struct builder *b, const char *name, shmb_dtype dtype, shmb_kind kind,
                       int32_t rank, const int64_t *dims, int64_t **offsets) {
    /* checked when its layout was introduced */
    const struct field *g = foreseen(b, name, dtype, kind, rank);
    struct extent at;
    if (g && !b->error->status && (dims || !field_dims(g)) &&
        shmb_field_place(g, dims, b->used, &at) && at.end <= b->room && b->count < b->field_room &&
        b->dim_count + field_dims(g) <= b->dim_room)
        return append(b, g, dims, &at, offsets);
    return add_checked(b, name, dtype, kind, rank, dims, offsets);
}

shmb_tensor *shmb_builder_tensors(struct builder *b) {
    shmb_tensor *tensors = builder_grow(b->tensors, &b->tensor_room, b->count, sizeof *tensors);
    if (!tensors) return NULL;
    b->tensors = tensors;
    const int64_t *dims = b->dims;
    struct extent at = {0};
    for (uint32_t i = 0; i < b->count; i++) {
        const struct field *f = &b->fields[i];
        shmb_field_place(f, dims, at.end, &at);
        tensors[i] = field_tensor(f, dims);
        tensors[i].size = at.size;
        tensors[i].data = b->body + at.values;
        if (kind_is_list(f->kind)) tensors[i].offsets = (const int64_t *)(b->body + at.offsets);
        dims += field_dims(f);
    }
    return tensors;
}
