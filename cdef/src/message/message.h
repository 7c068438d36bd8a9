/* A message: named tensors in memory. A layout is what stays the same from message to message
 * (names, dtypes, kinds, ranks); dims and bytes come with each. Nothing here knows how a message
 * travels. */
#ifndef SHMB_MESSAGE_H
#define SHMB_MESSAGE_H

#include <stdbool.h>

#include "base/error.h"

#define NO_MESSAGE "these fields make no message"

enum {
    MAX_DIMS = 1 + SHMB_MAX_RANK, /* a list's row count and its values' dims */
    ALIGNMENT = 64                /* of every field's bytes in a body */
};

struct field {
    const char *name; /* zero-terminated, owned by the layout or message that holds the field */
    uint32_t name_bytes;
    uint8_t dtype;
    uint8_t kind;
    uint8_t rank; /* of the values */
};

struct layout {
    uint32_t count; /* fields */
    uint32_t dims;  /* of all fields together */
    struct field *fields;
};

static inline bool kind_is_list(uint8_t kind) {
    return kind == SHMB_STRINGS || kind == SHMB_RAGGED;
}
/* Dims that a field has on the wire: its values' rank, and one more in front for a list's row
 * count. */
static inline uint32_t field_dims(const struct field *f) {
    return f->rank + (uint32_t)kind_is_list(f->kind);
}

/* The field as a tensor, without its values. */
static inline shmb_tensor field_tensor(const struct field *f, const int64_t *dims) {
    return (shmb_tensor){.name = f->name,
                         .dtype = (shmb_dtype)f->dtype,
                         .kind = (shmb_kind)f->kind,
                         .rank = f->rank,
                         .dims = dims};
}

/* Is this a field that can be: a known dtype and kind, and a rank that the kind allows? */
bool shmb_field_valid(uint8_t dtype, uint8_t kind, uint8_t rank);
bool shmb_field_equal(const struct field *a, const struct field *b);

/* Bytes of the UTF-8 character that text[size] begins with; 0 when it is none. */
size_t shmb_utf8_character(const uint8_t *text, size_t size);
/* Not empty, no zero byte, UTF-8. */
bool shmb_utf8_name_valid(const char *name, size_t bytes);
/* Why a layout could not be checked: the layout may be valid. Compare the addresses. */
extern const char shmb_out_of_memory[];

/* Why fields[count] cannot be those of one message by their names, static text; NULL when they can.
 * *which: the name; NULL when memory ran out. */
const char *shmb_names_wrong(const struct field *fields, uint32_t count, const char **which);

/* The same as an error: `wrong`, or NO_MEMORY, with a message that begins with `what`. */
shmb_status shmb_names_check(const struct field *fields, uint32_t count, shmb_status wrong,
                             const char *what, struct error *e);

/* A layout of these fields, with its own names, in one allocation (free); NULL when there is no
 * memory. */
struct layout *shmb_layout_copy(const struct field *fields, uint32_t count);

/* A layout's fields as tensors with their own names and dims, in one allocation (free), without
 * size, offsets and data; NULL when there is no memory. */
shmb_tensor *shmb_layout_tensors(const struct layout *l, const int64_t *dims);

/* To a multiple of `to`, a power of two; false when there is none. */
static inline bool round_up(size_t *n, size_t to) {
    if (__builtin_add_overflow(*n, to - 1, n)) return false;
    *n &= ~(to - 1);
    return true;
}

struct extent {
    size_t offsets; /* of a list: where int64[rows + 1] begins; else = values */
    size_t values;  /* where the elements begin, aligned */
    size_t end;
    int64_t size; /* elements */
};

#define MOST_BYTES ((int64_t)1 << 40) /* of a field, and of a slot */

/* Places a field whose dims are dims[field_dims] in a body at or after `used`. False when a dim is
 * negative, or when the values' dims, zeros taken as ones, make more than MOST_BYTES: so every
 * field is an array to any library, also in a batch. Sender and receiver both compute it, so that
 * offsets never travel. */
bool shmb_field_place(const struct field *f, const int64_t *dims, size_t used, struct extent *out);

/* Are offsets[rows + 1] those of a list of `values` values: from 0, never falling, up to values? */
bool shmb_offsets_valid(const int64_t *offsets, int64_t rows, int64_t values);

#endif
