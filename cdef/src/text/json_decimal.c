/* Decimal text to the nearest float or double, in every locale. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/json_reader.h"

/* A decimal number as digits * 10^exponent, with as many digits as decide how it rounds. */
struct decimal {
    bool negative;
    int count;        /* of digits, without leading zeros */
    uint64_t leading; /* the digits as a number, if they are at most 19 */
    int64_t exponent;
    /* the middle between two doubles has 768 at most; 1 says that others follow; an exponent */
    char digits[771 + 16];
};

static void decimal_read(struct decimal *d, const uint8_t *raw, size_t size) {
    const uint8_t *at = raw, *end = raw + size;
    bool point = false, more = false;
    d->count = 0, d->exponent = 0, d->leading = 0;
    d->negative = at < end && *at == '-';
    for (at += d->negative; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        if (point) d->exponent--;
        if (d->count < 770 && (d->count || *at != '0')) {
            if (d->count < 19) d->leading = d->leading * 10 + (*at - '0');
            d->digits[d->count++] = (char)*at;
        } else if (d->count) {
            d->exponent++;
            more |= *at != '0';
        }
    }
    if (more) {
        d->digits[d->count++] = '1';
        d->exponent--;
    }
    int64_t exponent = 0;
    bool negative = end - at > 1 && at[1] == '-';
    for (at++; at < end; at++)
        if (*at >= '0' && *at <= '9' && exponent < (int64_t)1 << 50)
            exponent = exponent * 10 + (*at - '0');
    d->exponent += negative ? -exponent : exponent;
}

/* Digits and an exponent for strtod: without a point it means the same in every locale. */
static const char *decimal_text(struct decimal *d) {
    enum { FAR = 2000 }; /* more than any digits make up for */
    int e = d->exponent < FAR ? (int)d->exponent : FAR;
    if (d->exponent < -FAR) e = -FAR;
    snprintf(d->digits + d->count, sizeof d->digits - (size_t)d->count, "e%d", e);
    return d->digits;
}

double shmb_json_double(const uint8_t *raw, size_t raw_size) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal d;
    decimal_read(&d, raw, raw_size);
    double value;
    /* Both operands exact: IEEE 754 rounds the result once. */
    if (d.count == 0) value = 0;
    else if (d.count <= 15 && d.exponent >= -22 && d.exponent <= 22)
        value = d.exponent < 0 ? (double)d.leading / powers[-d.exponent]
                               : (double)d.leading * powers[d.exponent];
    else value = strtod(decimal_text(&d), NULL);
    return d.negative ? -value : value;
}

float shmb_json_float(const uint8_t *raw, size_t raw_size) {
    struct decimal d;
    decimal_read(&d, raw, raw_size);
    float value = d.count ? strtof(decimal_text(&d), NULL) : 0;
    return d.negative ? -value : value;
}
