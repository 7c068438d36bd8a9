#include "message/convert.h"

#include <stdio.h>
#include <string.h>

#include "message/dtype.h"

#define STORE(type, value)                                                                         \
    do {                                                                                           \
        type stored = (type)(value);                                                               \
        memcpy(out, &stored, sizeof stored);                                                       \
    } while (0)

/* IEEE 754 binary16: 11 significant bits, exponents -14..15, subnormals down to 2^-24. */
static bool write_half(double v, void *out) {
    float f = (float)v;
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    uint32_t significand = (b & 0x7fffff) | 0x800000;
    int exponent = (int)(b >> 23 & 0xff) - 127;
    /* bits of the significand that a half has no room for */
    int drop = exponent < -14 ? -1 - exponent : 13;
    if (v != v) STORE(uint16_t, 0x7e00);
    else if (exponent == 128) STORE(uint16_t, sign | 0x7c00);
    else if (f == 0) STORE(uint16_t, sign);
    else if (exponent > 15 || exponent < -24 || significand & ((1u << drop) - 1)) return false;
    else if (exponent < -14) STORE(uint16_t, sign | significand >> drop);
    else STORE(uint16_t, sign | (uint32_t)(exponent + 15) << 10 | (significand & 0x7fffff) >> 13);
    return v != v || (double)f == v;
}

static bool write_bfloat(double v, void *out) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (v != v) bits = 0x7fc00000;
    STORE(uint16_t, bits >> 16);
    return v != v || ((double)f == v && (bits & 0xffff) == 0);
}

static float read_half(uint16_t half) {
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023, bits;
    float value = (float)fraction * 0x1p-24f; /* of a subnormal */
    if (exponent) {
        bits = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
        memcpy(&value, &bits, sizeof value);
    }
    return half & 0x8000 ? -value : value;
}

static float read_bfloat(uint16_t bfloat) {
    uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- By dtype: the forms of dtype.h's table ---- */

__attribute__((noinline)) static bool write_whole_as_real(int64_t v, shmb_dtype dtype, void *out) {
    /* A double holds it exactly when the way back gives it again; 2^63 itself would overflow that
     * way. */
    double d = (double)v;
    return d < 0x1p63 && (int64_t)d == v && shmb_convert_f64(d, dtype, out);
}

#define WHOLE_TO_boolean(type)                                                                     \
    STORE(type, v);                                                                                \
    return v == 0 || v == 1;
#define WHOLE_TO_whole(type)                                                                       \
    STORE(type, v);                                                                                \
    return (type)v == v;
#define WHOLE_TO_natural(type)                                                                     \
    STORE(type, v);                                                                                \
    return v >= 0 && (type)v == (uint64_t)v;
#define WHOLE_TO_half(type) return write_whole_as_real(v, dtype, out);
#define WHOLE_TO_bfloat(type) return write_whole_as_real(v, dtype, out);
#define WHOLE_TO_real(type) return write_whole_as_real(v, dtype, out);
#define FROM_WHOLE(NAME, name, type, form, llvm)                                                   \
    case SHMB_##NAME: WHOLE_TO_##form(type)

bool shmb_convert_i64(int64_t v, shmb_dtype dtype, void *out) {
    switch (dtype) {
        SHMB_DTYPES(FROM_WHOLE)
    case SHMB_ANY: break;
    }
    return false;
}

__attribute__((noinline)) static bool write_real_as_whole(double v, shmb_dtype dtype, void *out) {
    if (v >= -0x1p63 && v < 0x1p63)
        return (double)(int64_t)v == v && shmb_convert_i64((int64_t)v, dtype, out);
    if (dtype != SHMB_UINT64 || !(v >= 0 && v < 0x1p64)) return false;
    STORE(uint64_t, v); /* so large a double has no fraction */
    return true;
}

#define REAL_TO_boolean(type) return write_real_as_whole(v, dtype, out);
#define REAL_TO_whole(type) return write_real_as_whole(v, dtype, out);
#define REAL_TO_natural(type) return write_real_as_whole(v, dtype, out);
#define REAL_TO_half(type) return write_half(v, out);
#define REAL_TO_bfloat(type) return write_bfloat(v, out);
#define REAL_TO_real(type)                                                                         \
    STORE(type, v);                                                                                \
    return v != v || (double)(type)v == v;
#define FROM_REAL(NAME, name, type, form, llvm)                                                    \
    case SHMB_##NAME: REAL_TO_##form(type)

bool shmb_convert_f64(double v, shmb_dtype dtype, void *out) {
    switch (dtype) {
        SHMB_DTYPES(FROM_REAL)
    case SHMB_ANY: break;
    }
    return false;
}

static shmb_number whole(int64_t v) {
    return (shmb_number){.form = SHMB_WHOLE, .i = v, .f = (double)v};
}
static shmb_number real(double v) { return (shmb_number){.form = SHMB_REAL, .f = v}; }
static shmb_number natural(uint64_t v) {
    return v <= INT64_MAX ? whole((int64_t)v)
                          : (shmb_number){.form = SHMB_ABOVE_INT64, .u = v, .f = (double)v};
}
static shmb_number boolean(uint8_t v) { return whole(v); }
static shmb_number half(uint16_t v) { return real(read_half(v)); }
static shmb_number bfloat(uint16_t v) { return real(read_bfloat(v)); }

#define READ(NAME, name, type, form, llvm)                                                         \
    case SHMB_##NAME: {                                                                            \
        type v;                                                                                    \
        memcpy(&v, element, sizeof v);                                                             \
        return form(v);                                                                            \
    }

shmb_number shmb_number_at(const void *element, shmb_dtype dtype) {
    switch (dtype) {
        SHMB_DTYPES(READ)
    case SHMB_ANY: break;
    }
    return real(0);
}

const char *shmb_number_text(shmb_number n, char text[32]) {
    if (n.form == SHMB_REAL) snprintf(text, 32, "%.17g", n.f);
    else if (n.form == SHMB_WHOLE) snprintf(text, 32, "%lld", (long long)n.i);
    else snprintf(text, 32, "%llu", (unsigned long long)n.u);
    return text;
}

static bool convert_element(shmb_dtype from, const void *at, shmb_dtype to, void *out) {
    shmb_number n = shmb_number_at(at, from);
    if (n.form == SHMB_WHOLE) return shmb_convert_i64(n.i, to, out);
    if (n.form == SHMB_REAL) return shmb_convert_f64(n.f, to, out);
    if (to == SHMB_UINT64) return memcpy(out, &n.u, sizeof n.u);
    return n.f < 0x1p64 && (uint64_t)n.f == n.u && shmb_convert_f64(n.f, to, out);
}

int64_t shmb_convert_tensor(const shmb_tensor *from, shmb_dtype dtype, void *out) {
    size_t step = shmb_dtype_size(from->dtype), size = shmb_dtype_size(dtype);
    for (int64_t i = 0; i < from->size; i++)
        if (!convert_element(from->dtype, (const uint8_t *)from->data + (size_t)i * step, dtype,
                             (uint8_t *)out + (size_t)i * size))
            return i;
    return -1;
}
