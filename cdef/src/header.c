#include "header.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = INT32_MAX - 1, /* FlatBuffers' offsets are 31 bits */
    MAX_FIELDS = 999999,       /* FlatBuffers' verifier stops at a million tables; one is the layout's */
    PREFIX_BYTES = 36,
    FIELDS_SLOT = 4, /* vtable slots: a layout's fields; a field's name, dtype, kind, rank */
    NAME_SLOT = 4, DTYPE_SLOT = 6, KIND_SLOT = 8, RANK_SLOT = 10,
    FIELD_VTABLE = 14,
    FIELD_BYTES = 12
};

/* ---- Write --------------------------------------------------------------------------------------------------- */

/* All that comes before the fields: count, offset[count] of the fields, field[count], names. */
static const uint8_t prefix[PREFIX_BYTES] = {
    28, 0, 0, 0, 'S', 'H', 'M', 'B',          /*  0: offset of the layout; identifier */
    6, 0, 8, 0, 4, 0,                         /*  8: layout's vtable: its bytes, a layout's bytes, where fields is */
    12, 0, FIELD_BYTES, 0, 4, 0, 8, 0, 9, 0, 10, 0, 0, 0, /* 14: field's vtable: name, dtype, kind, rank; padding */
    20, 0, 0, 0, 4, 0, 0, 0                   /* 28: layout: distance back to its vtable, offset of fields */
};

static void store32(uint8_t *to, size_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* Length, text, and at least one zero, padded to 4. */
static size_t name_size(const struct field *f) { return 4 + ((size_t)f->name_bytes / 4 + 1) * 4; }

size_t header_write(const struct field *fields, uint32_t count, uint8_t *out, size_t capacity) {
    if (count > MAX_FIELDS) return 0;
    size_t offset = PREFIX_BYTES + 4, table = offset + 4 * (size_t)count, name = table + FIELD_BYTES * (size_t)count;
    size_t size = name;
    for (uint32_t i = 0; i < count; i++) {
        size += name_size(&fields[i]);
        if (size > MAX_BYTES) return 0;
    }
    if (size > capacity) return size;
    memset(out, 0, size);
    memcpy(out, prefix, PREFIX_BYTES);
    store32(out + PREFIX_BYTES, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        store32(out + offset, table - offset);
        store32(out + table, table - FIELD_VTABLE);
        store32(out + table + 4, name - (table + 4));
        out[table + 8] = f->dtype;
        out[table + 9] = f->kind;
        out[table + 10] = f->rank;
        store32(out + name, f->name_bytes);
        memcpy(out + name + 4, f->name, f->name_bytes);
        offset += 4;
        table += FIELD_BYTES;
        name += name_size(f);
    }
    return size;
}

/* ---- Verify -------------------------------------------------------------------------------------------------- */
/* The rules are those of flatbuffers::Verifier (verifier.h), which positions and sizes it allows included; an offset
 * in the vector of fields is held to the same rule as every other, where the Verifier is laxer. Positions count from
 * the header's start; 0, where no table, vector or string can be, means: not there or not valid. */

struct bytes {
    const uint8_t *data;
    size_t size;
};

static uint32_t load16(struct bytes b, size_t at) { return b.data[at] | (uint32_t)b.data[at + 1] << 8; }
static uint32_t load32(struct bytes b, size_t at) { return load16(b, at) | load16(b, at + 2) << 16; }

static bool within(struct bytes b, size_t at, size_t length) { return length < b.size && at <= b.size - length; }

/* Where the offset at `at` leads: inside, hence by less than 2 GiB. */
static size_t follow(struct bytes b, size_t at) {
    if (at % 4 || !within(b, at, 4)) return 0;
    size_t offset = load32(b, at);
    return offset && within(b, at + offset, 1) ? at + offset : 0;
}

/* Call table_valid first. */
static size_t table_vtable(struct bytes b, size_t table) {
    return table - (size_t)(int32_t)load32(b, table); /* signed: may lie on either side of the table */
}

static bool table_valid(struct bytes b, size_t table) {
    if (!table || table % 4 || !within(b, table, 4)) return false;
    size_t vtable = table_vtable(b, table);
    if (vtable % 2 || !within(b, vtable, 2)) return false;
    size_t size = load16(b, vtable);
    return size % 2 == 0 && within(b, vtable, size);
}

/* Where the table holds this slot's value; slots beyond the vtable are those of an older schema. */
static size_t table_slot(struct bytes b, size_t table, uint32_t slot) {
    size_t vtable = table_vtable(b, table);
    size_t offset = slot < load16(b, vtable) ? load16(b, vtable + slot) : 0;
    return offset ? table + offset : 0;
}

/* The table, vector or string that this slot must lead to. */
static size_t table_follow(struct bytes b, size_t table, uint32_t slot) {
    size_t at = table_slot(b, table, slot);
    return at ? follow(b, at) : 0;
}

/* A slot's number, or the schema's default of 0. */
static bool table_number(struct bytes b, size_t table, uint32_t slot, uint8_t *out) {
    size_t at = table_slot(b, table, slot);
    if (at && !within(b, at, 1)) return false;
    *out = at ? b.data[at] : 0;
    return true;
}

/* A vector or string: its length, then its elements. */
static bool vector_valid(struct bytes b, size_t vector, size_t element) {
    return vector && vector % 4 == 0 && within(b, vector, 4) && within(b, vector, 4 + element * load32(b, vector));
}

static bool string_valid(struct bytes b, size_t string) {
    if (!vector_valid(b, string, 1)) return false;
    size_t end = string + 4 + load32(b, string);
    return within(b, end, 1) && b.data[end] == 0;
}

/* ---- Read ---------------------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character that zero-terminated text begins with; 0 when it is none, or U+0000. */
static size_t character_bytes(const uint8_t *text) {
    uint8_t c = text[0], low = 0x80, high = 0xbf;
    if (c >= 0x01 && c <= 0x7f) return 1;
    size_t bytes = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (c == 0xe0) low = 0xa0;  /* shorter as 2 bytes */
    if (c == 0xed) high = 0x9f; /* surrogates */
    if (c == 0xf0) low = 0x90;  /* shorter as 3 bytes */
    if (c == 0xf4) high = 0x8f; /* above U+10FFFF */
    for (size_t i = 1; i < bytes; i++, low = 0x80, high = 0xbf)
        if (text[i] < low || text[i] > high) return 0; /* the terminating zero is too low */
    return bytes;
}

/* Not empty, no zero byte, UTF-8. */
static bool name_valid(const struct field *f) {
    const uint8_t *text = (const uint8_t *)f->name, *end = text + f->name_bytes;
    if (text == end) return false;
    for (size_t bytes; text < end; text += bytes)
        if (!(bytes = character_bytes(text))) return false;
    return true;
}

static int compare_names(const void *left, const void *right) {
    const struct field *a = left, *b = right;
    if (a->name_bytes != b->name_bytes) return a->name_bytes < b->name_bytes ? -1 : 1;
    return memcmp(a->name, b->name, a->name_bytes);
}

/* By sorting, which no choice of names makes slow. NULL or why not. */
static const char *check_names_differ(const struct layout *layout) {
    struct field *sorted = malloc(layout->count * sizeof *sorted + 1);
    if (!sorted) return "out of memory";
    memcpy(sorted, layout->fields, layout->count * sizeof *sorted);
    qsort(sorted, layout->count, sizeof *sorted, compare_names);
    const char *why = NULL;
    for (uint32_t i = 1; i < layout->count && !why; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0) why = "two fields have the same name";
    free(sorted);
    return why;
}

/* NULL or why not. *name_bytes counts the bytes of all names so far. */
static const char *read_field(struct bytes b, size_t table, struct field *f, size_t *name_bytes) {
    if (!table_valid(b, table)) return "a field is no valid FlatBuffers table";
    size_t name = table_follow(b, table, NAME_SLOT);
    if (!string_valid(b, name)) return "a field's name is missing or no valid FlatBuffers string";
    if (!table_number(b, table, DTYPE_SLOT, &f->dtype) || !table_number(b, table, KIND_SLOT, &f->kind)
        || !table_number(b, table, RANK_SLOT, &f->rank))
        return "a field's number lies outside the header";
    f->name = (const char *)b.data + name + 4;
    f->name_bytes = load32(b, name);
    *name_bytes += f->name_bytes;
    if (*name_bytes > b.size) return "names overlap"; /* reading each in full could take the square of the size */
    if (!name_valid(f)) return "a field's name is empty, holds a zero byte or is not UTF-8";
    return field_valid(f->dtype, f->kind, f->rank) ? NULL : "a field's dtype, kind or rank is unknown or cannot be";
}

static const char *read_fields(struct bytes b, size_t vector, struct layout *layout) {
    size_t name_bytes = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const char *why = read_field(b, follow(b, vector + 4 + 4 * (size_t)i), &layout->fields[i], &name_bytes);
        if (why) return why;
        layout->dims += field_dims(&layout->fields[i]);
    }
    return check_names_differ(layout);
}

struct layout *header_read(const uint8_t *bytes, size_t size, const char **why) {
    struct bytes b = {bytes, size};
    *why = "it is no FlatBuffer with the identifier SHMB";
    if (size < 12 || size > MAX_BYTES || memcmp(bytes + 4, prefix + 4, 4) != 0) return NULL;
    *why = "its layout or vector of fields is not valid FlatBuffers";
    size_t root = follow(b, 0);
    if (!table_valid(b, root)) return NULL;
    size_t vector = table_follow(b, root, FIELDS_SLOT);
    if (!vector_valid(b, vector, 4)) return NULL;
    *why = "it has more fields than FlatBuffers' verifier allows";
    uint32_t count = load32(b, vector);
    if (count > MAX_FIELDS) return NULL;

    *why = "out of memory";
    struct layout *layout = malloc(sizeof *layout + count * sizeof *layout->fields + size);
    if (!layout) return NULL;
    *layout = (struct layout){.count = count, .fields = (struct field *)(layout + 1)};
    /* The layout keeps the header, for its names are in there, zero-terminated. */
    b.data = memcpy(layout->fields + count, bytes, size);
    *why = read_fields(b, vector, layout);
    if (!*why) return layout;
    free(layout);
    return NULL;
}

void header_free(struct layout *layout) { free(layout); }
