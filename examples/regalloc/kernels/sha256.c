/* Rounds as SHA-256 has them: eight words of state and a window of sixteen. */
#include <stdint.h>

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

void sha256(uint32_t state[8], const uint32_t message[16], const uint32_t key[64]) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7], w[16];
    for (int i = 0; i < 16; i++) w[i] = message[i];
    for (int round = 0; round < 64; round += 16) {
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; i++) {
            uint32_t t = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) +
                         key[round + i] + w[i];
            uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
            uint32_t y = w[(i + 1) % 16], z = w[(i + 14) % 16];
            w[i] += (turn(y, 7) ^ turn(y, 18) ^ y >> 3) + w[(i + 9) % 16] +
                    (turn(z, 17) ^ turn(z, 19) ^ z >> 10);
        }
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}
