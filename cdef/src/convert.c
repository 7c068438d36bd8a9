#include "convert.h"

#include <string.h>

#define STORE(type, value)                                                                         \
    do {                                                                                           \
        type stored = (type)(value);                                                               \
        memcpy(out, &stored, sizeof stored);                                                       \
    } while (0)

static bool store_integer(int64_t v, shmb_dtype dtype, void *out) {
    switch (dtype) {
    case SHMB_BOOL: STORE(uint8_t, v); return v == 0 || v == 1;
    case SHMB_INT8: STORE(int8_t, v); return v >= INT8_MIN && v <= INT8_MAX;
    case SHMB_INT16: STORE(int16_t, v); return v >= INT16_MIN && v <= INT16_MAX;
    case SHMB_INT32: STORE(int32_t, v); return v >= INT32_MIN && v <= INT32_MAX;
    case SHMB_INT64: STORE(int64_t, v); return true;
    case SHMB_UINT8: STORE(uint8_t, v); return v >= 0 && v <= UINT8_MAX;
    case SHMB_UINT16: STORE(uint16_t, v); return v >= 0 && v <= UINT16_MAX;
    case SHMB_UINT32: STORE(uint32_t, v); return v >= 0 && v <= UINT32_MAX;
    case SHMB_UINT64: STORE(uint64_t, v); return v >= 0;
    default: return false;
    }
}

/* IEEE 754 binary16: 11 significant bits, exponents -14..15, subnormals down to 2^-24. */
static bool store_half(double v, void *out) {
    float f = (float)v;
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    uint32_t significand = (b & 0x7fffff) | 0x800000;
    int exponent = (int)(b >> 23 & 0xff) - 127;
    int drop = exponent < -14 ? -1 - exponent
                              : 13; /* bits of the significand that a half has no room for */
    if (v != v) STORE(uint16_t, 0x7e00);
    else if (exponent == 128) STORE(uint16_t, sign | 0x7c00);
    else if (f == 0) STORE(uint16_t, sign);
    else if (exponent > 15 || exponent < -24 || significand & ((1u << drop) - 1)) return false;
    else if (exponent < -14) STORE(uint16_t, sign | significand >> drop);
    else STORE(uint16_t, sign | (uint32_t)(exponent + 15) << 10 | (significand & 0x7fffff) >> 13);
    return v != v || (double)f == v;
}

static bool store_bfloat(double v, void *out) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (v != v) bits = 0x7fc00000;
    STORE(uint16_t, bits >> 16);
    return v != v || ((double)f == v && (bits & 0xffff) == 0);
}

bool convert_f64(double v, shmb_dtype dtype, void *out) {
    switch (dtype) {
    case SHMB_FLOAT64: STORE(double, v); return true;
    case SHMB_FLOAT32: STORE(float, v); return v != v || (double)(float)v == v;
    case SHMB_FLOAT16: return store_half(v, out);
    case SHMB_BFLOAT16: return store_bfloat(v, out);
    case SHMB_UINT64:
        if (!(v >= 0 && v < 18446744073709551616.0) || (double)(uint64_t)v != v) return false;
        STORE(uint64_t, v);
        return true;
    default:
        if (!(v >= -9223372036854775808.0 && v < 9223372036854775808.0) || (double)(int64_t)v != v)
            return false;
        return store_integer((int64_t)v, dtype, out);
    }
}

bool convert_i64(int64_t v, shmb_dtype dtype, void *out) {
    if (dtype < SHMB_FLOAT16) return store_integer(v, dtype, out);
    /* A double holds it exactly when the way back gives it again; 2^63 itself would overflow that way. */
    double d = (double)v;
    return d < 9223372036854775808.0 && (int64_t)d == v && convert_f64(d, dtype, out);
}

float half_value(uint16_t half) {
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023, bits;
    float value = (float)fraction * 0x1p-24f; /* of a subnormal */
    if (exponent) {
        bits = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
        memcpy(&value, &bits, sizeof value);
    }
    return half & 0x8000 ? -value : value;
}

float bfloat_value(uint16_t bfloat) {
    uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One element of a dtype, into another. */
static bool convert_element(shmb_dtype from, const uint8_t *at, shmb_dtype to, void *out) {
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
    memcpy(&v, at, shmb_dtype_size(from));
    switch (from) {
    case SHMB_BOOL:
    case SHMB_UINT8: return convert_i64(v.u8, to, out);
    case SHMB_INT8: return convert_i64(v.i8, to, out);
    case SHMB_INT16: return convert_i64(v.i16, to, out);
    case SHMB_INT32: return convert_i64(v.i32, to, out);
    case SHMB_INT64: return convert_i64(v.i64, to, out);
    case SHMB_UINT16: return convert_i64(v.u16, to, out);
    case SHMB_UINT32: return convert_i64(v.u32, to, out);
    case SHMB_UINT64:
        if (v.u64 <= INT64_MAX) return convert_i64((int64_t)v.u64, to, out);
        if (to == SHMB_UINT64) return memcpy(out, &v.u64, sizeof v.u64), true;
        return (double)v.u64 < 18446744073709551616.0 && (uint64_t)(double)v.u64 == v.u64 &&
               convert_f64((double)v.u64, to, out);
    case SHMB_FLOAT16: return convert_f64(half_value(v.u16), to, out);
    case SHMB_BFLOAT16: return convert_f64(bfloat_value(v.u16), to, out);
    case SHMB_FLOAT32: return convert_f64(v.f32, to, out);
    case SHMB_FLOAT64: return convert_f64(v.f64, to, out);
    case SHMB_ANY: break;
    }
    return false;
}

int64_t convert_tensor(const shmb_tensor *from, shmb_dtype dtype, void *out) {
    size_t step = shmb_dtype_size(from->dtype), size = shmb_dtype_size(dtype);
    for (int64_t i = 0; i < from->size; i++)
        if (!convert_element(from->dtype, (const uint8_t *)from->data + (size_t)i * step, dtype,
                             (uint8_t *)out + (size_t)i * size))
            return i;
    return -1;
}
