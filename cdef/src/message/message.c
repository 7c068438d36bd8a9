#include "message/message.h"

#include <stdlib.h>
#include <string.h>

#include "message/dtype.h"

bool shmb_field_valid(uint8_t dtype, uint8_t kind, uint8_t rank) {
    if (dtype == SHMB_ANY || dtype >= DTYPES) return false;
    switch (kind) {
    case SHMB_TENSOR: return rank <= SHMB_MAX_RANK;
    case SHMB_RAGGED: return rank >= 1 && rank <= SHMB_MAX_RANK;
    case SHMB_STRING:
    case SHMB_STRINGS: return dtype == SHMB_UINT8 && rank == 1;
    default: return false;
    }
}

bool shmb_field_equal(const struct field *a, const struct field *b) {
    return a->dtype == b->dtype && a->kind == b->kind && a->rank == b->rank &&
           a->name_bytes == b->name_bytes && memcmp(a->name, b->name, a->name_bytes) == 0;
}

size_t shmb_utf8_character(const uint8_t *text, size_t size) {
    uint8_t c = size ? text[0] : 0xff, low = 0x80, high = 0xbf;
    if (c < 0x80) return 1;
    size_t bytes = 2 + (c >= 0xe0) + (c >= 0xf0);
    if (c < 0xc2 || c > 0xf4 || bytes > size) return 0;
    if (c == 0xe0) low = 0xa0;  /* shorter as 2 bytes */
    if (c == 0xed) high = 0x9f; /* surrogates */
    if (c == 0xf0) low = 0x90;  /* shorter as 3 bytes */
    if (c == 0xf4) high = 0x8f; /* above U+10FFFF */
    for (size_t i = 1; i < bytes; i++, low = 0x80, high = 0xbf)
        if (text[i] < low || text[i] > high) return 0;
    return bytes;
}

bool shmb_utf8_name_valid(const char *name, size_t size) {
    const uint8_t *text = (const uint8_t *)name;
    for (size_t at = 0, bytes; at < size; at += bytes)
        if (!text[at] || !(bytes = shmb_utf8_character(text + at, size - at))) return false;
    return size > 0;
}

static int compare_names(const void *left, const void *right) {
    const struct field *a = left, *b = right;
    if (a->name_bytes != b->name_bytes) return a->name_bytes < b->name_bytes ? -1 : 1;
    return memcmp(a->name, b->name, a->name_bytes);
}

const char shmb_out_of_memory[] = "out of memory";

/* By sorting, which no choice of names makes slow. */
const char *shmb_names_wrong(const struct field *fields, uint32_t count, const char **which) {
    const char *why = NULL;
    struct field *sorted = malloc(count * sizeof *sorted + 1);
    *which = NULL;
    if (!sorted) return shmb_out_of_memory;
    if (count) memcpy(sorted, fields, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (uint32_t i = 0; i < count && !why; i++) {
        if (!shmb_utf8_name_valid(sorted[i].name, sorted[i].name_bytes))
            why = "a field's name is empty, holds a zero byte or is not UTF-8";
        else if (i && compare_names(&sorted[i - 1], &sorted[i]) == 0)
            why = "two fields have the same name";
        if (why) *which = sorted[i].name;
    }
    free(sorted);
    return why;
}

shmb_status shmb_names_check(const struct field *fields, uint32_t count, shmb_status wrong,
                             const char *what, struct error *e) {
    const char *which, *why = shmb_names_wrong(fields, count, &which);
    if (!why) return SHMB_OK;
    if (!which) return shmb_fail(e, SHMB_NO_MEMORY, "%s: %s", what, why);
    return shmb_fail(e, wrong, "%s: %s: %.100s", what, why, which);
}

struct layout *shmb_layout_copy(const struct field *fields, uint32_t count) {
    size_t bytes = sizeof(struct layout) + count * sizeof *fields;
    for (uint32_t i = 0; i < count; i++) bytes += fields[i].name_bytes + 1;
    struct layout *layout = malloc(bytes);
    if (!layout) return NULL;
    *layout = (struct layout){.count = count, .fields = (struct field *)(layout + 1)};
    char *names = (char *)(layout->fields + count);
    for (uint32_t i = 0; i < count; i++) {
        layout->fields[i] = fields[i];
        layout->fields[i].name = memcpy(names, fields[i].name, fields[i].name_bytes + 1);
        layout->dims += field_dims(&fields[i]);
        names += fields[i].name_bytes + 1;
    }
    return layout;
}

bool shmb_field_place(const struct field *f, const int64_t *dims, size_t used, struct extent *out) {
    if (!round_up(&used, ALIGNMENT)) return false;
    out->offsets = out->values = used;
    if (kind_is_list(f->kind)) {
        size_t bytes;
        if (dims[0] < 0 || __builtin_add_overflow((size_t)dims[0], (size_t)1, &bytes) ||
            __builtin_mul_overflow(bytes, sizeof(int64_t), &bytes) ||
            __builtin_add_overflow(used, bytes, &out->values) || !round_up(&out->values, ALIGNMENT))
            return false;
        dims++;
    }
    /* of the dims, zeros taken as ones: what numpy and others multiply, too */
    int64_t span = 1, size = 1;
    bool overflows = false;
    for (int i = 0; i < f->rank; i++) {
        if (dims[i] < 0) return false;
        overflows |= __builtin_mul_overflow(span, dims[i] ? dims[i] : 1, &span);
        size *= dims[i] != 0;
    }
    int64_t element = (int64_t)shmb_dtypes[f->dtype].size;
    if (overflows || span > MOST_BYTES || span * element > MOST_BYTES) return false;
    out->size = size ? span : 0;
    return !__builtin_add_overflow(out->values, (size_t)(out->size * element), &out->end);
}

bool shmb_offsets_valid(const int64_t *offsets, int64_t rows, int64_t values) {
    if (offsets[0] != 0 || offsets[rows] != values) return false;
    for (int64_t i = 0; i < rows; i++)
        if (offsets[i] > offsets[i + 1]) return false;
    return true;
}

shmb_tensor *shmb_layout_tensors(const struct layout *l, const int64_t *dims) {
    size_t bytes = l->count * sizeof(shmb_tensor) + l->dims * sizeof *dims + 1;
    for (uint32_t i = 0; i < l->count; i++) bytes += l->fields[i].name_bytes + 1;
    shmb_tensor *tensors = malloc(bytes);
    if (!tensors) return NULL;
    int64_t *own = (int64_t *)(tensors + l->count);
    char *names = (char *)(own + l->dims);
    if (l->dims) memcpy(own, dims, l->dims * sizeof *dims);
    for (uint32_t i = 0; i < l->count; i++) {
        const struct field *f = &l->fields[i];
        tensors[i] = field_tensor(f, own);
        tensors[i].name = memcpy(names, f->name, f->name_bytes + 1);
        own += field_dims(f);
        names += f->name_bytes + 1;
    }
    return tensors;
}
