/* Rounds as Keccak has them: twenty-five words of 64 bits. */
#include <stdint.h>

static uint64_t turn(uint64_t x, int n) { return n ? x << n | x >> (64 - n) : x; }

void keccak(uint64_t state[25], const uint64_t *constants, int rounds) {
    static const int by[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                               25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};
    uint64_t a[25], b[25], c[5], d[5];
    for (int i = 0; i < 25; i++) a[i] = state[i];
    for (int round = 0; round < rounds; round++) {
        for (int x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
        for (int x = 0; x < 5; x++) d[x] = c[(x + 4) % 5] ^ turn(c[(x + 1) % 5], 1);
#pragma clang loop unroll(full)
        for (int y = 0; y < 5; y++)
#pragma clang loop unroll(full)
            for (int x = 0; x < 5; x++)
                b[y + (2 * x + 3 * y) % 5 * 5] = turn(a[x + 5 * y] ^ d[x], by[x + 5 * y]);
#pragma clang loop unroll(full)
        for (int i = 0; i < 25; i++)
            a[i] = b[i] ^ (~b[i / 5 * 5 + (i + 1) % 5] & b[i / 5 * 5 + (i + 2) % 5]);
        a[0] ^= constants[round];
    }
    for (int i = 0; i < 25; i++) state[i] = a[i];
}
