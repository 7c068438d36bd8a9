#include "message/header.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = INT32_MAX - 1, /* FlatBuffers' offsets are 31 bits */
    /* FlatBuffers' verifier stops at a million tables; one is the layout's */
    MAX_FIELDS = 999999,
    PREFIX_BYTES = 36,
    FIELDS_SLOT = 4, /* vtable slots: a layout's fields; a field's name, dtype, kind, rank */
    NAME_SLOT = 4,
    DTYPE_SLOT = 6,
    KIND_SLOT = 8,
    RANK_SLOT = 10,
    FIELD_VTABLE = 14,
    FIELD_BYTES = 12
};

/* ---- Write ---- */

/* All that comes before the fields: count, offset[count] of the fields, field[count], names. */
static const uint8_t prefix[PREFIX_BYTES] = {
    28, 0, 0, 0, 'S', 'H', 'M', 'B', /*  0: offset of the layout; identifier */
    /*  8: layout's vtable: its bytes, a layout's bytes, where fields is */
    6, 0, 8, 0, 4, 0,
    /* 14: field's vtable: name, dtype, kind, rank; padding */
    12, 0, FIELD_BYTES, 0, 4, 0, 8, 0, 9, 0, 10, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0,
    0 /* 28: layout: distance back to its vtable, offset of fields */
};

static void store32(uint8_t *to, size_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* Length, text, and at least one zero, padded to 4. */
static size_t name_size(const struct field *f) { return 4 + ((size_t)f->name_bytes / 4 + 1) * 4; }

size_t shmb_header_write(const struct field *fields, uint32_t count, uint8_t *out,
                         size_t capacity) {
    if (count > MAX_FIELDS) return 0;
    size_t offset = PREFIX_BYTES + 4, table = offset + 4 * (size_t)count,
           name = table + FIELD_BYTES * (size_t)count;
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

/* ---- Verify ---- */
/* The rules are those of flatbuffers::Verifier (verifier.h), which positions and sizes it allows
 * included; an offset in the vector of fields is held to the same rule as every other, where the
 * Verifier is laxer. Positions count from the header's start; 0, where no table, vector or string
 * can be, means: not there or not valid. */

struct bytes {
    const uint8_t *data;
    size_t size;
};

static uint32_t load16(struct bytes b, size_t at) {
    return b.data[at] | (uint32_t)b.data[at + 1] << 8;
}
static uint32_t load32(struct bytes b, size_t at) {
    return load16(b, at) | load16(b, at + 2) << 16;
}

static bool within(struct bytes b, size_t at, size_t length) {
    return length < b.size && at <= b.size - length;
}

/* Where the offset at `at` leads: inside, hence by less than 2 GiB. */
static size_t follow(struct bytes b, size_t at) {
    if (at % 4 || !within(b, at, 4)) return 0;
    size_t offset = load32(b, at);
    return offset && within(b, at + offset, 1) ? at + offset : 0;
}

/* Call table_valid first. */
static size_t table_vtable(struct bytes b, size_t table) {
    /* signed: may lie on either side of the table */
    return table - (size_t)(int32_t)load32(b, table);
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
    return vector && vector % 4 == 0 && within(b, vector, 4) &&
           within(b, vector, 4 + element * load32(b, vector));
}

static bool string_valid(struct bytes b, size_t string) {
    if (!vector_valid(b, string, 1)) return false;
    size_t end = string + 4 + load32(b, string);
    return within(b, end, 1) && b.data[end] == 0;
}

/* ---- Read ---- */

/* NULL or why not. *name_bytes counts the bytes of all names so far. */
static const char *read_field(struct bytes b, size_t table, struct field *f, size_t *name_bytes) {
    if (!table_valid(b, table)) return "a field is no valid FlatBuffers table";
    size_t name = table_follow(b, table, NAME_SLOT);
    if (!string_valid(b, name)) return "a field's name is missing or no valid FlatBuffers string";
    if (!table_number(b, table, DTYPE_SLOT, &f->dtype) ||
        !table_number(b, table, KIND_SLOT, &f->kind) ||
        !table_number(b, table, RANK_SLOT, &f->rank))
        return "a field's number lies outside the header";
    f->name = (const char *)b.data + name + 4;
    f->name_bytes = load32(b, name);
    *name_bytes += f->name_bytes;
    /* reading each in full could take the square of the size */
    if (*name_bytes > b.size) return "names overlap";
    return shmb_field_valid(f->dtype, f->kind, f->rank)
               ? NULL
               : "a field's dtype, kind or rank is unknown or cannot be";
}

static const char *read_fields(struct bytes b, size_t vector, struct layout *layout) {
    size_t name_bytes = 0;
    const char *which;
    for (uint32_t i = 0; i < layout->count; i++) {
        const char *why =
            read_field(b, follow(b, vector + 4 + 4 * (size_t)i), &layout->fields[i], &name_bytes);
        if (why) return why;
        layout->dims += field_dims(&layout->fields[i]);
    }
    return shmb_names_wrong(layout->fields, layout->count, &which);
}

struct layout *shmb_header_read(const uint8_t *bytes, size_t size, const char **why) {
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

    *why = shmb_out_of_memory;
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
