/* libFuzzer: shmb_header_read on any bytes, and what it accepts written and read again. clang
 * -fsanitize=fuzzer,address,undefined -Icdef/include -Icdef/src tests/fuzz/fuzz_header.c
 * cdef/src/message/{header,message}.c */
#include <stdlib.h>
#include <string.h>

#include "message/header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1); /* malloc aligns to 16 */
    check(copy);
    if (size) memcpy(copy, data, size);
    return copy;
}

/* Writes the layout and reads it again: the same fields. */
static void check_round_trip(const struct layout *layout) {
    size_t size = shmb_header_write(layout->fields, layout->count, NULL, 0);
    check(size >= 40);
    uint8_t *bytes = malloc(size);
    check(bytes && shmb_header_write(layout->fields, layout->count, bytes, size) == size);
    const char *why;
    struct layout *again = shmb_header_read(bytes, size, &why);
    check(again && !why && again->count == layout->count && again->dims == layout->dims);
    free(bytes); /* the layout keeps nothing of it */
    for (uint32_t i = 0; i < layout->count; i++)
        check(shmb_field_equal(&again->fields[i], &layout->fields[i]));
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = exact_copy(data, size);
    const char *why = NULL;
    struct layout *layout = shmb_header_read(bytes, size, &why);
    free(bytes);
    check(!layout == (why != NULL));
    if (!layout) return 0;
    uint32_t dims = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct field *f = &layout->fields[i];
        check(shmb_field_valid(f->dtype, f->kind, f->rank) && strlen(f->name) == f->name_bytes &&
              f->name_bytes > 0);
        dims += field_dims(f);
    }
    check(dims == layout->dims);
    check_round_trip(layout);
    free(layout);
    return 0;
}
