/* A product of two numbers of 256 bits, column by column, modulo 2^256 - 38. */
#include <stdint.h>

void bignum(uint64_t r[4], const uint64_t a[4], const uint64_t b[4], int n) {
    uint64_t x[4] = {a[0], a[1], a[2], a[3]}, y[4] = {b[0], b[1], b[2], b[3]};
    for (; n > 0; n--) {
        uint64_t t[8] = {0};
#pragma clang loop unroll(full)
        for (int i = 0; i < 4; i++) {
            unsigned __int128 carry = 0;
#pragma clang loop unroll(full)
            for (int j = 0; j < 4; j++) {
                carry += (unsigned __int128)x[i] * y[j] + t[i + j];
                t[i + j] = (uint64_t)carry, carry >>= 64;
            }
            t[i + 4] = (uint64_t)carry;
        }
        unsigned __int128 carry = 0;
        for (int i = 0; i < 4; i++)
            carry += (unsigned __int128)t[i + 4] * 38 + t[i], x[i] = (uint64_t)carry, carry >>= 64;
        x[0] += (uint64_t)carry * 38;
    }
    for (int i = 0; i < 4; i++) r[i] = x[i];
}
