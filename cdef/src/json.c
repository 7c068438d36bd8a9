/* JSON:
 *
 *     request  {"name": value, …}
 *     advice   {"out": value} of one field, which is read as "advice"; {"out": {"name": value, …}} of none or several
 *
 * A value is a number, true, false, a string, or lists of them in each other: as deep as the tensor's rank. 64-bit
 * integers are exact; a float is written with as few digits as say which one it is, always with a point or an exponent;
 * NaN, Infinity and -Infinity are written so, as Python's json does. A byte of a string that is no UTF-8 is \udc80 to
 * \udcff.
 *
 * JSON has no dtypes. Without a wish whole numbers are read as int64, or as uint64 where one needs it. A list in which one
 * number has a fraction or an exponent is of float64, and its whole numbers must be that exactly: many writers, LLVM's for
 * one, print 0.0 as 0. A wish decides the dtype: whole numbers must then be of that dtype exactly; a decimal is the nearest
 * float32, as it would be the nearest float64, and a float16 or bfloat16 only when it has its value or is how that is
 * written here.
 * Lists of equal length are a tensor, else, at the second level only, a list of rows; [] is an empty float64 vector.
 * So an empty, a ragged or an integral field may be read as another that is written in the same way. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "json_reader.h"
#include "json_writer.h"
#include "serdes.h"

/* ---- Encode -------------------------------------------------------------------------------------------------- */

static void put_element(shmb_dtype dtype, const void *at, shmb_sink *to) {
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        float f32;
        double f64;
    } v;
    memcpy(&v, at, shmb_dtype_size(dtype));
    switch (dtype) {
    case SHMB_BOOL: json_put(to, v.u8 ? "true" : "false"); break;
    case SHMB_INT8: json_put_int(to, v.i8); break;
    case SHMB_INT16: json_put_int(to, v.i16); break;
    case SHMB_INT32: json_put_int(to, v.i32); break;
    case SHMB_INT64: json_put_int(to, v.i64); break;
    case SHMB_UINT8: json_put_uint(to, v.u8); break;
    case SHMB_UINT16: json_put_uint(to, v.u16); break;
    case SHMB_UINT32: json_put_uint(to, v.u32); break;
    case SHMB_UINT64: json_put_uint(to, v.u64); break;
    case SHMB_FLOAT16: json_put_float(to, half_value(v.u16)); break;
    case SHMB_BFLOAT16: json_put_float(to, bfloat_value(v.u16)); break;
    case SHMB_FLOAT32: json_put_float(to, v.f32); break;
    default: json_put_double(to, v.f64);
    }
}

/* Writes the values of dims[rank] at `at`; returns what follows them. */
static const uint8_t *put_nested(shmb_dtype dtype, int32_t rank, const int64_t *dims,
                                 const uint8_t *at, shmb_sink *to) {
    if (rank == 0) {
        put_element(dtype, at, to);
        return at + shmb_dtype_size(dtype);
    }
    json_put(to, "[");
    for (int64_t i = 0; i < dims[0] && !to->error->status; i++) {
        if (i) json_put(to, ", ");
        at = put_nested(dtype, rank - 1, dims + 1, at, to);
    }
    json_put(to, "]");
    return at;
}

static void put_rows(const shmb_tensor *t, shmb_sink *to) {
    const uint8_t *at = t->data;
    int64_t dims[SHMB_MAX_RANK];
    memcpy(dims, t->dims + 1, (size_t)t->rank * sizeof *dims);
    json_put(to, "[");
    for (int64_t i = 0; i < t->dims[0] && !to->error->status; i++) {
        if (i) json_put(to, ", ");
        dims[0] = t->offsets[i + 1] - t->offsets[i];
        if (t->kind == SHMB_STRINGS) json_put_string(to, at + t->offsets[i], (size_t)dims[0]);
        else at = put_nested(t->dtype, t->rank, dims, at, to);
    }
    json_put(to, "]");
}

/* Has a field without values so large a size in front of its 0 that its brackets alone would fill memory? */
static bool is_vast(const shmb_tensor *t) {
    int64_t brackets = 1;
    const int64_t *dims = t->dims + kind_is_list((uint8_t)t->kind);
    for (int i = 0; i < t->rank && dims[i] && t->size == 0; i++)
        if (__builtin_mul_overflow(brackets, dims[i], &brackets) || brackets > 1 << 20) return true;
    return false;
}

static void put_value(const shmb_tensor *t, shmb_sink *to) {
    if (is_vast(t))
        sink_fail(
            to, SHMB_UNSUPPORTED,
            "\"%.100s\": JSON would write over a million empty lists for it: use serdes=flatbuffers",
            t->name);
    else if (t->kind == SHMB_STRING) json_put_string(to, t->data, (size_t)t->size);
    else if (t->kind == SHMB_TENSOR) put_nested(t->dtype, t->rank, t->dims, t->data, to);
    else put_rows(t, to);
}

static void put_object(const shmb_tensor *fields, int64_t n, shmb_sink *to) {
    json_put(to, "{");
    for (int64_t i = 0; i < n && !to->error->status; i++) {
        if (i) json_put(to, ", ");
        if (!json_put_name(to, fields[i].name)) return;
        json_put(to, " ");
        put_value(&fields[i], to);
    }
    json_put(to, "}");
}

static shmb_status encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t n,
                          shmb_dtype want, shmb_sink *bytes) {
    (void)context, (void)want;
    if (side == SHMB_ADVICE) json_put(bytes, "{\"out\": ");
    if (side == SHMB_ADVICE && n == 1) put_value(fields, bytes);
    else put_object(fields, n, bytes);
    if (side == SHMB_ADVICE) json_put(bytes, "}");
    return bytes->error->status;
}

/* ---- Measure a value ----------------------------------------------------------------------------------------- */

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

static bool refuse(struct shape *s, shmb_status status, const char *why) {
    s->wrong = why;
    s->status = status;
    return false;
}

static bool measure_element(struct json *j, struct shape *s, int level) {
    struct json_text text;
    struct json_number n;
    bool b;
    if (s->levels >= 0 && s->levels != level)
        return refuse(s, SHMB_MISMATCH, "lists of one depth, found values beside lists");
    s->levels = level;
    switch (json_peek(j)) {
    case JSON_STRING:
        s->found |= STRINGS;
        if (!json_string(j, &text)) return false;
        s->text += (int64_t)text.size;
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        s->found |= BOOLS;
        if (!json_bool(j, &b)) return false;
        break;
    case JSON_NUMBER:
        if (!json_number(j, &n)) return false;
        if (n.kind == JSON_HUGE)
            return refuse(s, SHMB_INEXACT, "integers of 64 bits, found a larger one");
        s->found |= n.kind == JSON_FLOAT  ? FLOATS
                    : n.kind == JSON_UINT ? INTEGERS | ABOVE_INT64
                                          : INTEGERS;
        if (n.i < 0) s->found |= NEGATIVE;
        break;
    case JSON_NULL:
        return json_skip(j) &&
               refuse(s, SHMB_MISMATCH, "a number, bool, string or list, found null");
    case JSON_OBJECT:
        return refuse(s, SHMB_MISMATCH, "a number, bool, string or list, found an object");
    default: return json_wrong(j, "a value");
    }
    return true;
}

/* Reads a value within `level` brackets; false on an error of the text, or one in s->wrong. */
static bool measure(struct json *j, struct shape *s, int level) {
    int64_t size = 0;
    if (json_peek(j) != JSON_ARRAY) return measure_element(j, s, level);
    if (level == MAX_LEVELS)
        return refuse(s, SHMB_UNSUPPORTED, "a rank of at most 8, found deeper lists");
    if (level >= s->deepest) s->deepest = level + 1;
    for (json_array(j); json_element(j); size++)
        if (!measure(j, s, level + 1)) return false;
    if (j->expected) return false;
    if (level == 1) s->rows += size;
    if (s->sizes[level] < 0) s->sizes[level] = size;
    if (s->sizes[level] == size) return true;
    if (level != 1)
        return refuse(s, SHMB_MISMATCH,
                      "lists of equal length below the second level, found others");
    return s->ragged = true;
}

/* Says what a value of these elements cannot be; NULL when all is well. */
static void check_elements(struct shape *s, shmb_dtype want) {
    int kinds = s->found & (INTEGERS | FLOATS | BOOLS | STRINGS);
    bool text = kinds & STRINGS;
    if (s->levels >= 0 && s->levels < s->deepest)
        refuse(s, SHMB_MISMATCH, "lists of one depth, found values beside lists");
    else if (kinds & (kinds - 1) && kinds != (INTEGERS | FLOATS))
        refuse(s, SHMB_MISMATCH, "elements of one type, found several");
    else if (text && s->levels > 1)
        refuse(s, SHMB_UNSUPPORTED,
               "a string or a list of strings, found lists of lists of strings");
    else if (text && want != SHMB_ANY && want != SHMB_UINT8)
        refuse(s, SHMB_MISMATCH, "numbers of the dtype that was asked for, found strings");
    else if (!s->ragged && s->deepest > SHMB_MAX_RANK)
        refuse(s, SHMB_UNSUPPORTED, "a rank of at most 8, found deeper lists");
    else if (s->found & ABOVE_INT64 && s->found & NEGATIVE && !(s->found & FLOATS) &&
             want == SHMB_ANY)
        refuse(s, SHMB_INEXACT,
               "integers of one type, found one above int64 beside a negative one");
}

static shmb_dtype dtype_of(const struct shape *s, shmb_dtype want) {
    if (s->found & STRINGS) return SHMB_UINT8;
    if (want != SHMB_ANY) return want;
    if (s->found & BOOLS) return SHMB_BOOL;
    if (s->found & FLOATS) return SHMB_FLOAT64;
    if (s->found & INTEGERS) return s->found & ABOVE_INT64 ? SHMB_UINT64 : SHMB_INT64;
    return SHMB_FLOAT64;
}

/* ---- Read it into place -------------------------------------------------------------------------------------- */

struct place {
    shmb_dtype dtype;
    shmb_kind kind;
    uint8_t *at;
    int64_t *offset, reached; /* of a list: the next offset to write, and the one written last */
    const uint8_t *found;     /* the number that has no exact counterpart */
    size_t found_size;
};

/* Is the number, which rounds to f, one that printf writes of f? */
static bool is_written_of(const struct json_number *n, float f) {
    char text[JSON_NUMBER_ROOM];
    for (int digits = f > -FLT_MIN && f < FLT_MIN ? 1 : FLT_DIG; digits <= 9; digits++)
        if (json_double((const uint8_t *)text, json_print(text, digits, (double)f)) == n->value)
            return true;
    return false;
}

static bool put_number(const struct json_number *n, shmb_dtype dtype, void *to) {
    if (n->kind == JSON_INT) return convert_i64(n->i, dtype, to);
    if (n->kind == JSON_UINT && dtype == SHMB_UINT64) return memcpy(to, &n->u, sizeof n->u), true;
    if (n->kind == JSON_UINT && !(n->value < 0x1p64 && (uint64_t)n->value == n->u)) return false;
    if (convert_f64(n->value, dtype, to)) return true;
    if (n->kind == JSON_UINT ||
        (dtype != SHMB_FLOAT32 && dtype != SHMB_FLOAT16 && dtype != SHMB_BFLOAT16))
        return false;
    float f = json_float(n->raw, n->raw_size);
    if (f - f != 0) return false; /* too large */
    if (dtype == SHMB_FLOAT32) return memcpy(to, &f, sizeof f), true;
    return is_written_of(n, f) && convert_f64((double)f, dtype, to);
}

static bool fill_element(struct json *j, struct place *p) {
    struct json_text text;
    struct json_number n;
    bool b;
    switch (json_peek(j)) {
    case JSON_STRING:
        json_string(j, &text);
        json_copy(&text, (char *)p->at);
        p->at += text.size;
        if (p->offset) *p->offset++ = p->reached += (int64_t)text.size;
        return true;
    case JSON_NUMBER:
        if (!json_number(j, &n) || !put_number(&n, p->dtype, p->at))
            return p->found = n.raw, p->found_size = n.raw_size, false;
        break;
    default: json_bool(j, &b); convert_i64(b, p->dtype, p->at);
    }
    p->at += shmb_dtype_size(p->dtype);
    return true;
}

/* Reads a value that was measured; false when a number has no exact counterpart. */
static bool fill(struct json *j, struct place *p, int level) {
    int64_t size = 0;
    if (json_peek(j) != JSON_ARRAY) return fill_element(j, p);
    for (json_array(j); json_element(j); size++)
        if (!fill(j, p, level + 1)) return false;
    if (p->offset && level == 1) *p->offset++ = p->reached += size;
    return true;
}

static shmb_status add_field(struct json *j, const char *name, const struct shape *s,
                             shmb_dtype dtype, shmb_sink *message) {
    bool text = s->found & STRINGS;
    shmb_kind kind = text        ? (s->deepest ? SHMB_STRINGS : SHMB_STRING)
                     : s->ragged ? SHMB_RAGGED
                                 : SHMB_TENSOR;
    int32_t rank = text ? 1 : s->deepest - s->ragged;
    int64_t dims[MAX_LEVELS];
    memcpy(dims, s->sizes, sizeof dims);
    if (s->ragged) dims[1] = s->rows;
    if (text) dims[s->deepest] = s->text;
    struct place p = {.dtype = dtype};
    p.at = shmb_sink_field(message, name, dtype, kind, rank, dims, &p.offset);
    if (!p.at || message->error->status) return message->error->status;
    if (kind == SHMB_STRINGS || kind == SHMB_RAGGED) *p.offset++ = 0;
    else p.offset = NULL;
    if (fill(j, &p, 0)) return SHMB_OK;
    return sink_fail(
        message, SHMB_INEXACT,
        "\"%.100s\": expected numbers that are %s exactly, found %.*s: ask for another dtype", name,
        shmb_dtype_name(dtype), p.found_size < 40 ? (int)p.found_size : 40, (const char *)p.found);
}

static shmb_status read_value(struct json *j, const char *name, shmb_dtype want,
                              shmb_sink *message) {
    struct shape s = {.levels = -1, .sizes = {-1, -1, -1, -1, -1, -1, -1, -1, -1}};
    struct json again = *j;
    if (measure(j, &s, 0)) check_elements(&s, want);
    if (s.wrong) return sink_fail(message, s.status, "\"%.100s\": expected %s", name, s.wrong);
    if (j->expected) return json_fail(j, message->error, "JSON");
    return add_field(&again, name, &s, dtype_of(&s, want), message);
}

/* ---- Decode -------------------------------------------------------------------------------------------------- */

/* {"name": value, …}. name: room for the longest. */
static shmb_status read_fields(struct json *j, char *name, shmb_dtype want, shmb_sink *message) {
    struct json_text key;
    json_object(j);
    while (json_key(j, &key)) {
        if (!json_name(&key, name))
            return sink_fail(
                message, SHMB_CORRUPT,
                "expected names of UTF-8 without a zero byte that are not empty, found \"%.100s\"",
                name);
        if (read_value(j, name, want, message)) break;
    }
    return message->error->status;
}

static shmb_status read_advice(struct json *j, char *name, shmb_dtype want, shmb_sink *message) {
    struct json_text key;
    bool out = false;
    json_object(j);
    while (json_key(j, &key)) {
        if (out || !json_is(&key, "out"))
            return sink_fail(message, SHMB_CORRUPT,
                             "expected {\"out\": value}, found another key: \"%.*s\"",
                             key.raw_size < 100 ? (int)key.raw_size : 100, (const char *)key.raw);
        out = true;
        if (json_peek(j) == JSON_OBJECT) read_fields(j, name, want, message);
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

static shmb_status check_names_differ(shmb_sink *message) {
    const char *which,
        *why = names_wrong(message->message->fields, message->message->count, &which);
    if (!why) return SHMB_OK;
    return sink_fail(message, which ? SHMB_CORRUPT : SHMB_NO_MEMORY, "%s%s%.100s", why,
                     which ? ": " : "", which ? which : "");
}

static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message) {
    (void)context;
    struct json j;
    char *name = malloc(size + 1);
    if (!name) return sink_fail(message, SHMB_NO_MEMORY, "no memory for %zu bytes of JSON", size);
    json_start(&j, bytes, size);
    shmb_status status = side == SHMB_REQUEST ? read_fields(&j, name, SHMB_ANY, message)
                                              : read_advice(&j, name, want, message);
    free(name);
    if (status) return status;
    return json_end(&j) ? check_names_differ(message) : json_fail(&j, message->error, "JSON");
}

const shmb_serdes serdes_json = {
    .size = sizeof(shmb_serdes), .name = "json", .encode = encode, .decode = decode};
