/* Rounds as BLAKE2b has them: sixteen words of 64 bits, mixed four by four. */
#include <stdint.h>

static uint64_t turn(uint64_t x, int n) { return x >> n | x << (64 - n); }

#define MIX(a, b, c, d, x, y)                                                                      \
    do {                                                                                           \
        a += b + x, d = turn(d ^ a, 32);                                                           \
        c += d, b = turn(b ^ c, 24);                                                               \
        a += b + y, d = turn(d ^ a, 16);                                                           \
        c += d, b = turn(b ^ c, 63);                                                               \
    } while (0)

void blake2b(uint64_t state[16], const uint64_t m[16], int rounds) {
    uint64_t v[16];
    for (int i = 0; i < 16; i++) v[i] = state[i];
    for (int round = 0; round < rounds; round++) {
        MIX(v[0], v[4], v[8], v[12], m[0], m[1]);
        MIX(v[1], v[5], v[9], v[13], m[2], m[3]);
        MIX(v[2], v[6], v[10], v[14], m[4], m[5]);
        MIX(v[3], v[7], v[11], v[15], m[6], m[7]);
        MIX(v[0], v[5], v[10], v[15], m[8], m[9]);
        MIX(v[1], v[6], v[11], v[12], m[10], m[11]);
        MIX(v[2], v[7], v[8], v[13], m[12], m[13]);
        MIX(v[3], v[4], v[9], v[14], m[14], m[15]);
    }
    for (int i = 0; i < 16; i++) state[i] ^= v[i];
}
