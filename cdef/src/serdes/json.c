/* JSON: docs/protocol.md has the format. A float is written with as few digits as say which one it
 * is, always with a point or an exponent.
 *
 * A list in which one number has a fraction or an exponent is of float64, and its whole numbers
 * must be that exactly: many writers, LLVM's for one, print 0.0 as 0. A wish decides the dtype:
 * whole numbers must then be of that dtype exactly; a decimal is the nearest float32, as it
 * would be the nearest float64, and a float16 or bfloat16 only when it has its value or is how
 * that is written here. So an empty, a ragged or an integral field may be read as another that
 * is written in the same way. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "message/convert.h"
#include "serdes/serdes.h"
#include "text/json_reader.h"
#include "text/json_writer.h"

/* ---- Encode ---- */

static void put_element(shmb_dtype dtype, const void *at, shmb_sink *to) {
    shmb_number n = shmb_number_at(at, dtype);
    if (dtype == SHMB_BOOL) shmb_json_put(to, n.i ? "true" : "false");
    else if (n.form == SHMB_WHOLE) shmb_json_put_int(to, n.i);
    else if (n.form == SHMB_ABOVE_INT64) shmb_json_put_uint(to, n.u);
    else if (shmb_dtype_size(dtype) < sizeof(double)) shmb_json_put_float(to, (float)n.f);
    else shmb_json_put_double(to, n.f);
}

/* Writes the values of dims[rank] at `at`; returns what follows them. */
static const uint8_t *put_nested(shmb_dtype dtype, int32_t rank, const int64_t *dims,
                                 const uint8_t *at, shmb_sink *to) {
    if (rank == 0) {
        put_element(dtype, at, to);
        return at + shmb_dtype_size(dtype);
    }
    shmb_json_put(to, "[");
    for (int64_t i = 0; i < dims[0] && !to->error->status; i++) {
        if (i) shmb_json_put(to, ", ");
        at = put_nested(dtype, rank - 1, dims + 1, at, to);
    }
    shmb_json_put(to, "]");
    return at;
}

static void put_rows(const shmb_tensor *t, shmb_sink *to) {
    const uint8_t *at = t->data;
    int64_t dims[SHMB_MAX_RANK];
    memcpy(dims, t->dims + 1, (size_t)t->rank * sizeof *dims);
    shmb_json_put(to, "[");
    for (int64_t i = 0; i < t->dims[0] && !to->error->status; i++) {
        if (i) shmb_json_put(to, ", ");
        dims[0] = t->offsets[i + 1] - t->offsets[i];
        if (t->kind == SHMB_STRINGS) shmb_json_put_string(to, at + t->offsets[i], (size_t)dims[0]);
        else at = put_nested(t->dtype, t->rank, dims, at, to);
    }
    shmb_json_put(to, "]");
}

/* Has a field without values so large a size in front of its 0 that its brackets alone would fill
 * memory? */
static bool is_vast(const shmb_tensor *t) {
    int64_t brackets = 1;
    const int64_t *dims = t->dims + kind_is_list((uint8_t)t->kind);
    for (int i = 0; i < t->rank && dims[i] && t->size == 0; i++)
        if (__builtin_mul_overflow(brackets, dims[i], &brackets) || brackets > 1 << 20) return true;
    return false;
}

static void put_value(const shmb_tensor *t, shmb_sink *to) {
    if (is_vast(t))
        sink_fail(to, SHMB_UNSUPPORTED,
                  "\"%.100s\": JSON would write over a million empty lists for it: use "
                  "serdes=flatbuffers",
                  t->name);
    else if (t->kind == SHMB_STRING) shmb_json_put_string(to, t->data, (size_t)t->size);
    else if (t->kind == SHMB_TENSOR) put_nested(t->dtype, t->rank, t->dims, t->data, to);
    else put_rows(t, to);
}

static void put_object(const shmb_tensor *fields, int64_t n, shmb_sink *to) {
    shmb_json_put(to, "{");
    for (int64_t i = 0; i < n && !to->error->status; i++) {
        if (i) shmb_json_put(to, ", ");
        if (!shmb_json_put_name(to, fields[i].name)) return;
        shmb_json_put(to, " ");
        put_value(&fields[i], to);
    }
    shmb_json_put(to, "}");
}

static shmb_status json_encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t n,
                               shmb_dtype want, shmb_sink *bytes) {
    (void)context, (void)want;
    if (side == SHMB_ADVICE) shmb_json_put(bytes, "{\"out\": ");
    if (side == SHMB_ADVICE && n == 1) put_value(fields, bytes);
    else put_object(fields, n, bytes);
    if (side == SHMB_ADVICE) shmb_json_put(bytes, "}");
    return bytes->error->status;
}

/* ---- Measure a value ---- */

enum { MAX_LEVELS = SHMB_MAX_RANK + 1 };
enum { INTEGERS = 1, FLOATS = 2, BOOLS = 4, STRINGS = 8, NEGATIVE = 16, ABOVE_INT64 = 32 };

struct shape {
    int found;                 /* of the bits above */
    int levels;                /* brackets around each element; -1: none was seen yet */
    int deepest;               /* brackets in each other */
    int64_t sizes[MAX_LEVELS]; /* elements of each list of a level; -1: none was seen yet */
    bool ragged;               /* those of level 1 differ */
    int64_t rows;              /* elements of all lists of level 1 together */
    int64_t text;              /* bytes of all strings */
    const char *wrong;         /* why it is no field */
    shmb_status status;
};

static bool json_refuse(struct shape *s, shmb_status status, const char *why) {
    s->wrong = why;
    s->status = status;
    return false;
}

static bool measure_element(struct json *j, struct shape *s, int level) {
    struct json_text text;
    struct shmb_json_number n;
    bool b;
    if (s->levels >= 0 && s->levels != level)
        return json_refuse(s, SHMB_MISMATCH, "lists of one depth, found values and lists");
    s->levels = level;
    switch (shmb_json_peek(j)) {
    case JSON_STRING:
        s->found |= STRINGS;
        if (!shmb_json_string(j, &text)) return false;
        s->text += (int64_t)text.size;
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        s->found |= BOOLS;
        if (!shmb_json_bool(j, &b)) return false;
        break;
    case JSON_NUMBER:
        if (!shmb_json_number(j, &n)) return false;
        if (n.kind == JSON_HUGE)
            return json_refuse(s, SHMB_INEXACT, "integers of 64 bits, found a larger one");
        s->found |= n.kind == JSON_FLOAT ? FLOATS : INTEGERS;
        if (n.kind == JSON_UINT) s->found |= ABOVE_INT64;
        if (n.i < 0) s->found |= NEGATIVE;
        break;
    case JSON_NULL:
        return shmb_json_skip(j) &&
               json_refuse(s, SHMB_MISMATCH, "a number, bool, string or list, found null");
    case JSON_OBJECT:
        return json_refuse(s, SHMB_MISMATCH, "a number, bool, string or list, found an object");
    default: return shmb_json_wrong(j, "a value");
    }
    return true;
}

/* Reads a value within `level` brackets; false on an error of the text, or one in s->wrong. */
static bool json_measure(struct json *j, struct shape *s, int level) {
    int64_t size = 0;
    if (shmb_json_peek(j) != JSON_ARRAY) return measure_element(j, s, level);
    if (level == MAX_LEVELS)
        return json_refuse(s, SHMB_UNSUPPORTED, "a rank of at most 8, found deeper lists");
    if (level >= s->deepest) s->deepest = level + 1;
    for (shmb_json_array(j); shmb_json_element(j); size++)
        if (!json_measure(j, s, level + 1)) return false;
    if (j->expected) return false;
    if (level == 1) s->rows += size;
    if (s->sizes[level] < 0) s->sizes[level] = size;
    if (s->sizes[level] == size) return true;
    if (level != 1)
        return json_refuse(s, SHMB_MISMATCH,
                           "lists of equal length below the second level, found others");
    return s->ragged = true;
}

/* Says what a value of these elements cannot be; NULL when all is well. */
static void check_elements(struct shape *s, shmb_dtype want) {
    int kinds = s->found & (INTEGERS | FLOATS | BOOLS | STRINGS);
    bool text = kinds & STRINGS;
    if (s->levels >= 0 && s->levels < s->deepest)
        json_refuse(s, SHMB_MISMATCH, "lists of one depth, found values and lists");
    else if (kinds & (kinds - 1) && kinds != (INTEGERS | FLOATS))
        json_refuse(s, SHMB_MISMATCH, "elements of one type, found several");
    else if (text && s->levels > 1)
        json_refuse(s, SHMB_UNSUPPORTED,
                    "a string or a list of strings, found lists of lists of strings");
    else if (text && want != SHMB_ANY && want != SHMB_UINT8)
        json_refuse(s, SHMB_MISMATCH, "numbers of the dtype that was asked for, found strings");
    else if (!s->ragged && s->deepest > SHMB_MAX_RANK)
        json_refuse(s, SHMB_UNSUPPORTED, "a rank of at most 8, found deeper lists");
    else if (s->found & ABOVE_INT64 && s->found & NEGATIVE && !(s->found & FLOATS) &&
             want == SHMB_ANY)
        json_refuse(s, SHMB_INEXACT,
                    "integers of one type, found a negative one and one above int64");
}

static shmb_dtype dtype_of(const struct shape *s, shmb_dtype want) {
    if (s->found & STRINGS) return SHMB_UINT8;
    if (want != SHMB_ANY) return want;
    if (s->found & BOOLS) return SHMB_BOOL;
    if (s->found & FLOATS) return SHMB_FLOAT64;
    if (s->found & INTEGERS) return s->found & ABOVE_INT64 ? SHMB_UINT64 : SHMB_INT64;
    return SHMB_FLOAT64;
}

/* ---- Read it into place ---- */

struct cursor {
    shmb_dtype dtype;
    shmb_kind kind;
    uint8_t *at;
    int64_t *offset, reached; /* of a list: the next offset to write, and the one written last */
    const uint8_t *found;     /* the number that has no exact counterpart */
    size_t found_size;
};

/* Is the number, which rounds to f, one that printf writes of f? */
static bool is_written_of(const struct shmb_json_number *n, float f) {
    char text[JSON_NUMBER_ROOM];
    for (int digits = f > -FLT_MIN && f < FLT_MIN ? 1 : FLT_DIG; digits <= 9; digits++)
        if (shmb_json_double((const uint8_t *)text, shmb_json_print(text, digits, (double)f)) ==
            n->value)
            return true;
    return false;
}

/* One that rounds what a double holds? Of all dtypes the floats alone have 0.5. */
static bool is_narrow_float(shmb_dtype dtype) {
    uint8_t room[8];
    return shmb_dtype_size(dtype) < sizeof(double) && shmb_convert_f64(0.5, dtype, room);
}

static bool put_number(const struct shmb_json_number *n, shmb_dtype dtype, void *to) {
    if (n->kind == JSON_INT) return shmb_convert_i64(n->i, dtype, to);
    if (n->kind == JSON_UINT && dtype == SHMB_UINT64) {
        memcpy(to, &n->u, sizeof n->u);
        return true;
    }
    if (n->kind == JSON_UINT && !(n->value < 0x1p64 && (uint64_t)n->value == n->u)) return false;
    if (shmb_convert_f64(n->value, dtype, to)) return true;
    if (n->kind == JSON_UINT || !is_narrow_float(dtype)) return false;
    float f = shmb_json_float(n->raw, n->raw_size);
    if (f - f != 0) return false; /* too large */
    return (dtype == SHMB_FLOAT32 || is_written_of(n, f)) && shmb_convert_f64((double)f, dtype, to);
}

static bool fill_element(struct json *j, struct cursor *p) {
    struct json_text text;
    struct shmb_json_number n;
    bool b;
    switch (shmb_json_peek(j)) {
    case JSON_STRING:
        shmb_json_string(j, &text);
        shmb_json_copy(&text, (char *)p->at);
        p->at += text.size;
        if (p->offset) *p->offset++ = p->reached += (int64_t)text.size;
        return true;
    case JSON_NUMBER:
        if (!shmb_json_number(j, &n) || !put_number(&n, p->dtype, p->at)) {
            p->found = n.raw;
            p->found_size = n.raw_size;
            return false;
        }
        break;
    default: shmb_json_bool(j, &b); shmb_convert_i64(b, p->dtype, p->at);
    }
    p->at += shmb_dtype_size(p->dtype);
    return true;
}

/* Reads a value that was measured; false when a number has no exact counterpart. */
static bool json_fill(struct json *j, struct cursor *p, int level) {
    int64_t size = 0;
    if (shmb_json_peek(j) != JSON_ARRAY) return fill_element(j, p);
    for (shmb_json_array(j); shmb_json_element(j); size++)
        if (!json_fill(j, p, level + 1)) return false;
    if (p->offset && level == 1) *p->offset++ = p->reached += size;
    return true;
}

static shmb_status add_field(struct json *j, const char *name, const struct shape *s,
                             shmb_dtype dtype, shmb_sink *message) {
    bool text = s->found & STRINGS;
    shmb_kind kind = s->ragged ? SHMB_RAGGED : SHMB_TENSOR;
    if (text) kind = s->deepest ? SHMB_STRINGS : SHMB_STRING;
    int32_t rank = text ? 1 : s->deepest - s->ragged;
    int64_t dims[MAX_LEVELS];
    memcpy(dims, s->sizes, sizeof dims);
    if (s->ragged) dims[1] = s->rows;
    if (text) dims[s->deepest] = s->text;
    struct cursor p = {.dtype = dtype};
    p.at = shmb_sink_field(message, name, dtype, kind, rank, dims, &p.offset);
    if (!p.at || message->error->status) return message->error->status;
    if (kind == SHMB_STRINGS || kind == SHMB_RAGGED) *p.offset++ = 0;
    else p.offset = NULL;
    if (json_fill(j, &p, 0)) return SHMB_OK;
    return sink_fail(
        message, SHMB_INEXACT,
        "\"%.100s\": expected numbers that are %s exactly, found %.*s: ask for another dtype", name,
        shmb_dtype_name(dtype), p.found_size < 40 ? (int)p.found_size : 40, (const char *)p.found);
}

static shmb_status read_value(struct json *j, const char *name, shmb_dtype want,
                              shmb_sink *message) {
    struct shape s = {.levels = -1, .sizes = {-1, -1, -1, -1, -1, -1, -1, -1, -1}};
    struct json again = *j;
    if (json_measure(j, &s, 0)) check_elements(&s, want);
    if (s.wrong) return sink_fail(message, s.status, "\"%.100s\": expected %s", name, s.wrong);
    if (j->expected) return shmb_json_fail(j, message->error, "JSON");
    return add_field(&again, name, &s, dtype_of(&s, want), message);
}

/* ---- Decode ---- */

/* {"name": value, …}. name: room for the longest. */
static shmb_status read_fields(struct json *j, char *name, shmb_dtype want, shmb_sink *message) {
    struct json_text key;
    shmb_json_object(j);
    while (shmb_json_key(j, &key)) {
        if (!shmb_json_name(&key, name))
            return sink_fail(
                message, SHMB_CORRUPT,
                "expected names of UTF-8 without a zero byte that are not empty, found \"%.100s\"",
                name);
        if (read_value(j, name, want, message)) break;
    }
    return message->error->status;
}

static shmb_status json_read_advice(struct json *j, char *name, shmb_dtype want,
                                    shmb_sink *message) {
    struct json_text key;
    bool out = false;
    shmb_json_object(j);
    while (shmb_json_key(j, &key)) {
        if (out || !shmb_json_is(&key, "out"))
            return sink_fail(message, SHMB_CORRUPT,
                             "expected {\"out\": value}, found another key: \"%.*s\"",
                             key.raw_size < 100 ? (int)key.raw_size : 100, (const char *)key.raw);
        out = true;
        if (shmb_json_peek(j) == JSON_OBJECT) read_fields(j, name, want, message);
        else read_value(j, "advice", want, message);
        if (message->error->status) return message->error->status;
    }
    if (!out && !j->expected)
        return sink_fail(message, SHMB_CORRUPT,
                         "expected {\"out\": value}, found an object without \"out\"");
    if (want && !j->expected && message->message->count != 1)
        return sink_fail(message, SHMB_MISMATCH, "expected one field of dtype %s, found %u",
                         shmb_dtype_name(want), message->message->count);
    return SHMB_OK;
}

static shmb_status check_names_differ(shmb_sink *to) {
    return shmb_names_check(to->message->fields, to->message->count, SHMB_CORRUPT, NO_MESSAGE,
                            to->error);
}

static shmb_status json_decode(void *context, shmb_side side, const void *bytes, size_t size,
                               shmb_dtype want, shmb_sink *message) {
    (void)context;
    struct json j;
    char *name = malloc(size + 1);
    if (!name) return sink_fail(message, SHMB_NO_MEMORY, "no memory for %zu bytes of JSON", size);
    shmb_json_start(&j, bytes, size);
    shmb_status status = side == SHMB_REQUEST ? read_fields(&j, name, SHMB_ANY, message)
                                              : json_read_advice(&j, name, want, message);
    free(name);
    if (status) return status;
    return shmb_json_end(&j) ? check_names_differ(message)
                             : shmb_json_fail(&j, message->error, "JSON");
}

const shmb_serdes shmb_serdes_json = {
    .size = sizeof(shmb_serdes), .name = "json", .encode = json_encode, .decode = json_decode};
