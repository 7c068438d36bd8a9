/* A number becomes another dtype exactly or not at all: every float16 and bfloat16, and every
 * integer type's edges. */
#include <float.h>
#include <math.h>

#include "bridge.h"
#include "message/convert.h"

static double half_meaning(uint32_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double v = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return bits & 0x8000 ? -v : v;
}

static double bfloat_meaning(uint32_t bits) {
    int exponent = bits >> 7 & 255, fraction = bits & 127;
    double v = exponent == 255 ? (fraction ? NAN : INFINITY)
               : exponent      ? ldexp(128 + fraction, exponent - 134)
                               : ldexp(fraction, -133);
    return bits & 0x8000 ? -v : v;
}

static void all_of(shmb_dtype dtype, double (*value)(uint32_t)) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t out;
        double v = value(bits);
        CHECK(shmb_convert_f64(v, dtype, &out));
        if (isnan(v)) CHECK(isnan(value(out)));
        else CHECK(out == bits);
        if (!isfinite(v)) continue;
        /* Its neighbours among doubles, and the middle between it and the next, are not of that
         * dtype. */
        CHECK(!shmb_convert_f64(nextafter(v, INFINITY), dtype, &out) &&
              !shmb_convert_f64(nextafter(v, -INFINITY), dtype, &out));
        double next = value(bits + 1);
        if ((bits & 0x7fff) != 0x7fff && isfinite(next))
            CHECK(!shmb_convert_f64((v + next) / 2, dtype, &out));
    }
}

/* The integers of `bits` bits around their edges, from int64 and from double. */
static void integers(shmb_dtype dtype, double least, double most) {
    uint64_t out;
    CHECK(shmb_convert_f64(least, dtype, &out) && shmb_convert_f64(0, dtype, &out) &&
          shmb_convert_f64(-0.0, dtype, &out));
    CHECK(!shmb_convert_f64(least - (least < -1e15 ? 4096 : 1), dtype, &out) &&
          !shmb_convert_f64(0.5, dtype, &out));
    CHECK(!shmb_convert_f64(NAN, dtype, &out) && !shmb_convert_f64(INFINITY, dtype, &out) &&
          !shmb_convert_f64(-INFINITY, dtype, &out));
    if (most < 1e15) {
        CHECK(shmb_convert_f64(most, dtype, &out) && !shmb_convert_f64(most + 1, dtype, &out));
        CHECK(shmb_convert_i64((int64_t)most, dtype, &out) &&
              !shmb_convert_i64((int64_t)most + 1, dtype, &out));
        CHECK(shmb_convert_i64((int64_t)least, dtype, &out) &&
              !shmb_convert_i64((int64_t)least - 1, dtype, &out));
    } else {
        CHECK(!shmb_convert_f64(most, dtype, &out)); /* as a double it is one too many */
        CHECK(shmb_convert_f64(nextafter(most, 0), dtype, &out));
        CHECK(shmb_convert_i64(INT64_MAX, dtype, &out) && out == INT64_MAX);
    }
}

static void integers_as_floats(void) {
    static const struct {
        shmb_dtype dtype;
        int bits;
    } floats[] = {{SHMB_FLOAT16, 11}, {SHMB_FLOAT32, 24}, {SHMB_FLOAT64, 53}, {SHMB_BFLOAT16, 8}};
    for (int i = 0; i < 4; i++) {
        int64_t whole = (int64_t)1 << floats[i].bits, out;
        for (int sign = -1; sign <= 1; sign += 2) {
            CHECK(shmb_convert_i64(sign * whole, floats[i].dtype, &out) &&
                  !shmb_convert_i64(sign * (whole + 1), floats[i].dtype, &out));
            CHECK(shmb_convert_i64(sign * (whole - 1), floats[i].dtype, &out) &&
                  shmb_convert_i64(sign * (whole + 2), floats[i].dtype, &out));
        }
        CHECK(!shmb_convert_i64(INT64_MAX, floats[i].dtype, &out));
        CHECK(shmb_convert_i64(INT64_MIN, floats[i].dtype, &out) ==
              (floats[i].dtype != SHMB_FLOAT16));
    }
    int64_t out;
    CHECK(!shmb_convert_i64(65536, SHMB_FLOAT16, &out) &&
          shmb_convert_i64(65504, SHMB_FLOAT16, &out) &&
          !shmb_convert_i64(65505, SHMB_FLOAT16, &out));
}

static void integers_above_int64(void) {
    uint64_t from[] = {1ull << 63, (1ull << 63) + 1, UINT64_MAX}, out;
    for (int i = 0; i < 3; i++) {
        shmb_tensor one = {.dtype = SHMB_UINT64, .size = 1, .data = &from[i]};
        CHECK(shmb_convert_tensor(&one, SHMB_UINT64, &out) == -1 && out == from[i]);
        CHECK(shmb_convert_tensor(&one, SHMB_FLOAT64, &out) == (i ? 0 : -1));
        CHECK(shmb_convert_tensor(&one, SHMB_INT64, &out) == 0);
    }
}

int main(void) {
    uint64_t out;
    all_of(SHMB_FLOAT16, half_meaning);
    all_of(SHMB_BFLOAT16, bfloat_meaning);
    integers(SHMB_BOOL, 0, 1);
    integers(SHMB_INT8, -128, 127);
    integers(SHMB_INT16, -32768, 32767);
    integers(SHMB_INT32, INT32_MIN, INT32_MAX);
    integers(SHMB_INT64, -0x1p63, 0x1p63);
    integers(SHMB_UINT8, 0, 255);
    integers(SHMB_UINT16, 0, 65535);
    integers(SHMB_UINT32, 0, UINT32_MAX);
    integers(SHMB_UINT64, 0, 0x1p64);
    integers_as_floats();
    integers_above_int64();
    CHECK(shmb_convert_f64(FLT_MAX, SHMB_FLOAT32, &out) &&
          !shmb_convert_f64(DBL_MAX, SHMB_FLOAT32, &out));
    CHECK(shmb_convert_f64(0x1p-149, SHMB_FLOAT32, &out) &&
          !shmb_convert_f64(0x1p-150, SHMB_FLOAT32, &out));
    CHECK(shmb_convert_f64(DBL_TRUE_MIN, SHMB_FLOAT64, &out) &&
          !shmb_convert_f64(DBL_TRUE_MIN, SHMB_FLOAT32, &out));
    CHECK(!shmb_convert_f64(DBL_MAX, SHMB_FLOAT16, &out) &&
          !shmb_convert_f64(DBL_TRUE_MIN, SHMB_BFLOAT16, &out));
    float f;
    CHECK(shmb_convert_f64(INFINITY, SHMB_FLOAT32, &f) && isinf(f) &&
          shmb_convert_f64(NAN, SHMB_FLOAT32, &f) && isnan(f));
    CHECK(!shmb_convert_i64(1, SHMB_ANY, &out) && !shmb_convert_f64(1, SHMB_ANY, &out));
}
