#include "text/json_writer.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/json_reader.h"

static void writer_put(shmb_sink *to, const void *text, size_t size) {
    void *at = size ? shmb_sink_bytes(to, size) : NULL;
    if (at) memcpy(at, text, size);
}

void shmb_json_put(shmb_sink *to, const char *text) { writer_put(to, text, strlen(text)); }

void shmb_json_put_int(shmb_sink *to, int64_t value) {
    char text[24];
    writer_put(to, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void shmb_json_put_uint(shmb_sink *to, uint64_t value) {
    char text[24];
    writer_put(to, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

size_t shmb_json_print(char out[JSON_NUMBER_ROOM], int digits, double value) {
    char printed[JSON_NUMBER_ROOM];
    size_t size = 0;
    bool fraction = false;
    snprintf(printed, sizeof printed, "%.*g", digits, value);
    for (const char *c = printed; *c && size < JSON_NUMBER_ROOM - 3; c++) {
        bool known = (*c >= '0' && *c <= '9') || *c == '-' || *c == '+' || *c == 'e';
        if (known) out[size++] = *c;
        else if (!fraction) out[size++] = '.'; /* a locale's point may be several bytes */
        fraction |= !known || *c == 'e';
    }
    if (!fraction) out[size++] = '.', out[size++] = '0';
    return size;
}

static bool put_special(shmb_sink *to, double value) {
    if (isfinite(value)) return false;
    const char *infinite = value < 0 ? "-Infinity" : "Infinity";
    shmb_json_put(to, isnan(value) ? "NaN" : infinite);
    return true;
}

/* With as few digits, of `digits` to `most`, as say which double or (narrow) float it is. */
static void put_shortest(shmb_sink *to, double value, int digits, int most, bool narrow) {
    char text[JSON_NUMBER_ROOM];
    const uint8_t *raw = (const uint8_t *)text;
    size_t size;
    double read;
    do {
        size = shmb_json_print(text, digits, value);
        read = narrow ? (double)shmb_json_float(raw, size) : shmb_json_double(raw, size);
    } while (read != value && ++digits <= most);
    writer_put(to, text, size);
}

/* A decimal of at most DBL_DIG digits survives the way through a double, so fewer need no trial: %g
 * drops the zeros. The subnormal numbers are less precise than that. */
void shmb_json_put_double(shmb_sink *to, double value) {
    if (!put_special(to, value))
        put_shortest(to, value, fabs(value) < DBL_MIN ? 1 : DBL_DIG, 17, false);
}

/* What shmb_json_print would write of units / 10^places, whose last digit is not 0 unless places is
 * 1. */
static size_t print_decimal(char *out, bool negative, uint64_t units, int places) {
    char digits[24];
    size_t size = 0;
    int count = 0;
    for (; units || count <= places; units /= 10) digits[count++] = (char)('0' + units % 10);
    if (negative) out[size++] = '-';
    while (count) {
        out[size++] = digits[--count];
        if (count == places) out[size++] = '.';
    }
    return size;
}

/* A float of usual size, four times as fast as by printing and reading: a decimal of up to nine
 * digits is an integer over a power of ten, both exact in a double. 0 when that finds none. */
static size_t print_usual(char *out, float value) {
    static const double powers[] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                    1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    double magnitude = fabs((double)value);
    int places = 12;
    if (!(magnitude >= 1e-4 && magnitude < 1e6)) return 0;
    while (magnitude * powers[places] >= 1e9) places--;
    double nine = magnitude * powers[places];
    for (uint64_t unit = 1000; unit; unit /= 10) {
        double exact = nine / (double)unit;
        uint64_t units = (uint64_t)(exact + 0.5);
        /* to even, as printf does; rint wants libm */
        units -= units & (uint64_t)((double)units - exact == 0.5);
        units *= unit;
        if ((float)((double)units / powers[places]) != fabsf(value)) continue;
        for (; places > 1 && units % 10 == 0; places--) units /= 10;
        return print_decimal(out, value < 0, units, places);
    }
    return 0;
}

void shmb_json_put_float(shmb_sink *to, float value) {
    char text[JSON_NUMBER_ROOM];
    if (put_special(to, (double)value)) return;
    size_t size = print_usual(text, value);
    if (size && shmb_json_float((uint8_t *)text, size) == value) writer_put(to, text, size);
    else put_shortest(to, (double)value, fabsf(value) < FLT_MIN ? 1 : FLT_DIG, 9, true);
}

/* Bytes that stand for themselves at the beginning of text[size]. */
static size_t plain_bytes(const uint8_t *text, size_t size) {
    size_t at = 0;
    while (at < size && text[at] >= ' ' && text[at] != '"' && text[at] != '\\') {
        size_t bytes = text[at] < 0x80 ? 1 : shmb_utf8_character(text + at, size - at);
        if (!bytes) break;
        at += bytes;
    }
    return at;
}

bool shmb_json_put_string(shmb_sink *to, const void *text, size_t size) {
    const uint8_t *at = text, *end = at + size;
    bool valid = true;
    shmb_json_put(to, "\"");
    while (at < end) {
        size_t plain = plain_bytes(at, (size_t)(end - at));
        writer_put(to, at, plain);
        at += plain;
        if (at == end) break;
        char escape[8];
        /* what is meant, its letter */
        const char *simple = *at ? strchr("\"\"\\\\\nn\tt\rr\bb\ff", *at) : NULL;
        if (simple) writer_put(to, (char[]){'\\', simple[1]}, 2);
        else
            writer_put(to, escape,
                       (size_t)snprintf(escape, sizeof escape, "\\u%04x",
                                        *at < 0x80 ? *at : 0xdc00u + *at));
        valid &= *at && *at < 0x80;
        at++;
    }
    shmb_json_put(to, "\"");
    return valid;
}

bool shmb_json_put_name(shmb_sink *to, const char *name) {
    if (!*name || !shmb_json_put_string(to, name, strlen(name))) {
        sink_fail(to, SHMB_INVALID, "expected a name of UTF-8 that is not empty, found \"%.100s\"",
                  name);
        return false;
    }
    shmb_json_put(to, ":");
    return true;
}
