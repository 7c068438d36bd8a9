/* ML-Compiler-Bridge's bitstream, byte for byte: docs/protocol.md has the format.
 *
 * An advice carries neither dtype nor shape: whoever reads it says the dtype, and gets a number for
 * one element, else a vector. 4 bytes alone that are wanted as int64 or float64 are an int32 or
 * float32; wanted as bool, one byte alone is one bool, else each takes 4 bytes. */
#include <string.h>

#include "message/convert.h"
#include "serdes/codec.h"
#include "serdes/serdes.h"
#include "text/json_writer.h"
#include "text/spec.h"

/* ---- Encode ---- */

/* What a dtype is called there; NULL when it has no form. */
static const char *type_of(shmb_dtype dtype) {
    return shmb_llvm_type(dtype == SHMB_BOOL ? SHMB_UINT8 : dtype);
}

static bool has_form(const shmb_tensor *t, shmb_sink *bytes) {
    if ((t->kind == SHMB_TENSOR || t->kind == SHMB_STRING) && type_of(t->dtype)) return true;
    const char *what = shmb_dtype_name(t->dtype);
    if (t->kind == SHMB_STRINGS) what = "lists of strings";
    if (t->kind == SHMB_RAGGED) what = "lists of rows";
    sink_fail(bytes, SHMB_UNSUPPORTED,
              "\"%.100s\": a bitstream has no %s: send another dtype, or use serdes=flatbuffers or "
              "serdes=json",
              t->name, what);
    return false;
}

static void put_field(const shmb_tensor *t, shmb_sink *bytes) {
    shmb_json_put(bytes, "{\"name\":");
    shmb_json_put_string(bytes, t->name, strlen(t->name));
    shmb_json_put(bytes, ",\"type\":\"");
    shmb_json_put(bytes, type_of(t->dtype));
    shmb_json_put(bytes, "\",\"port\":6020,\"shape\":[");
    for (int i = 0; i < t->rank; i++) {
        if (i) shmb_json_put(bytes, ",");
        shmb_json_put_int(bytes, t->dims[i]);
    }
    shmb_json_put(bytes, t->rank ? "]}" : "1]}");
}

static void put_values(const shmb_tensor *t, shmb_sink *bytes) {
    size_t size = (size_t)t->size * shmb_dtype_size(t->dtype);
    void *to = size ? shmb_sink_bytes(bytes, size) : NULL;
    if (to) memcpy(to, t->data, size);
}

static void put_request(const shmb_tensor *fields, int64_t n, shmb_dtype want, shmb_sink *bytes) {
    shmb_json_put(bytes, "{\"features\":[");
    for (int64_t i = 0; i < n; i++) {
        if (!has_form(&fields[i], bytes)) return;
        if (i) shmb_json_put(bytes, ",");
        put_field(&fields[i], bytes);
    }
    shmb_json_put(bytes, "]");
    if (bytes->typed) {
        shmb_json_put(bytes, ",\"want\":\"");
        shmb_json_put(bytes, shmb_dtype_name(want));
        shmb_json_put(bytes, "\"");
    }
    shmb_json_put(bytes, "}\n");
    for (int64_t i = 0; i < n; i++) put_values(&fields[i], bytes);
    shmb_json_put(bytes, "\n");
}

static void put_advice(const shmb_tensor *t, int64_t n, shmb_sink *bytes) {
    if (n != 1) {
        sink_fail(
            bytes, SHMB_MISMATCH,
            "a bitstream's advice is one tensor, found %lld: use serdes=flatbuffers or serdes=json",
            (long long)n);
        return;
    }
    if (!has_form(t, bytes)) return;
    if (t->dtype != SHMB_BOOL) {
        put_values(t, bytes);
        return;
    }
    int32_t *to = shmb_sink_bytes(bytes, (size_t)t->size * sizeof *to);
    for (int64_t i = 0; to && i < t->size; i++)
        memcpy(to + i, &(int32_t){((const uint8_t *)t->data)[i] != 0}, sizeof *to);
}

static shmb_status bitstream_encode(void *context, shmb_side side, const shmb_tensor *fields,
                                    int64_t n, shmb_dtype want, shmb_sink *bytes) {
    (void)context;
    if (side == SHMB_REQUEST) put_request(fields, n, want, bytes);
    else put_advice(fields, n, bytes);
    return bytes->error->status;
}

/* ---- Decode ---- */

static void bitstream_add_fields(const struct spec *spec, const uint8_t *values,
                                 shmb_sink *message) {
    for (uint32_t i = 0; i < spec->count; i++) {
        const struct spec_field *f = &spec->features[i];
        void *to = shmb_sink_field(message, f->name, f->dtype, SHMB_TENSOR, f->rank, f->dims, NULL);
        if (!to || message->error->status) return;
        if (f->bytes) memcpy(to, values, f->bytes);
        values += f->bytes;
    }
}

static shmb_status read_request(const uint8_t *bytes, size_t size, shmb_sink *message) {
    struct spec spec;
    const uint8_t *newline = size ? memchr(bytes, '\n', size) : NULL;
    if (!newline)
        return sink_fail(message, SHMB_CORRUPT,
                         "expected a header line of JSON, found %zu bytes without a newline", size);
    if (shmb_spec_read(&spec, bytes, (size_t)(newline - bytes), message->error))
        return message->error->status;
    size_t left = size - (size_t)(newline + 1 - bytes);
    if (left == 0 || left - 1 != spec.bytes || bytes[size - 1] != '\n')
        sink_fail(
            message, SHMB_CORRUPT,
            "expected the header line's %zu bytes of tensors and a newline, found %zu bytes%s",
            spec.bytes, left,
            left && left - 1 == spec.bytes ? ", the last of which is not a newline" : "");
    else bitstream_add_fields(&spec, newline + 1, message);
    if (spec.has_want) message->want = spec.want;
    message->typed = spec.has_want;
    shmb_spec_free(&spec);
    return message->error->status;
}

/* The bools of ints; false where one is neither 0 nor 1. */
static bool copy_bools(uint8_t *to, const uint8_t *bytes, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++, bytes += width) {
        int32_t value = *bytes;
        if (width > 1) memcpy(&value, bytes, sizeof value);
        if (value < 0 || value > 1) return false;
        to[i] = (uint8_t)value;
    }
    return true;
}

/* The 4 bytes of an int or a float where the reader wants 8; NULL where there is no such. */
static const void *widened(const uint8_t *bytes, size_t size, shmb_dtype want, double *room) {
    shmb_tensor narrow = {
        .size = 1, .data = bytes, .dtype = want == SHMB_FLOAT64 ? SHMB_FLOAT32 : SHMB_INT32};
    bool is = size == 4 && (want == SHMB_INT64 || want == SHMB_FLOAT64) &&
              shmb_convert_tensor(&narrow, want, room) < 0;
    return is ? room : NULL;
}

static shmb_status bitstream_read_advice(const uint8_t *bytes, size_t size, shmb_dtype want,
                                         shmb_sink *message) {
    double room;
    const void *wide = widened(bytes, size, want, &room);
    if (wide) bytes = wide, size = sizeof room;
    size_t width = want == SHMB_BOOL && size != 1 ? sizeof(int32_t) : shmb_dtype_size(want);
    if (want == SHMB_ANY)
        return sink_fail(message, SHMB_MISMATCH,
                         "bitstream carries no dtype, and only shmbridge's hosts send "
                         "one: ask with shmb_evaluate_as, or evaluate(..., dtype=)");
    if (!type_of(want))
        return sink_fail(message, SHMB_UNSUPPORTED,
                         "a bitstream has no %s: use serdes=flatbuffers or serdes=json",
                         shmb_dtype_name(want));
    if (size % width)
        return sink_fail(message, SHMB_MISMATCH,
                         "expected advice of dtype %s, a multiple of %zu bytes, found %zu: ask for "
                         "the dtype that the host sends",
                         shmb_dtype_name(want), width, size);
    int64_t count = (int64_t)(size / width);
    void *to = shmb_sink_field(message, "advice", want, SHMB_TENSOR, count != 1, &count, NULL);
    if (!to || message->error->status) return message->error->status;
    if (want != SHMB_BOOL && size) memcpy(to, bytes, size);
    if (want == SHMB_BOOL && !copy_bools(to, bytes, count, width))
        return sink_fail(
            message, SHMB_INEXACT,
            "expected advice of dtype bool, 0 or 1, found another number: ask for int32");
    return message->error->status;
}

static shmb_status bitstream_decode(void *context, shmb_side side, const void *bytes, size_t size,
                                    shmb_dtype want, shmb_sink *message) {
    (void)context;
    return side == SHMB_REQUEST ? read_request(bytes, size, message)
                                : bitstream_read_advice(bytes, size, want, message);
}

const shmb_serdes shmb_serdes_bitstream = {.size = sizeof(shmb_serdes),
                                           .name = "bitstream",
                                           .encode = bitstream_encode,
                                           .decode = bitstream_decode};
