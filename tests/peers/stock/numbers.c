/* Calls to inline, and more live values than an x86-64 or aarch64 has registers. */
#include "numbers.h"

#define EACH(X)                                                                                    \
    X(0)                                                                                           \
    X(1)                                                                                           \
    X(2)                                                                                           \
    X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)

static long mix(long a, long b) {
    for (int i = 0; i < 3; i++) a = a * 31 + (b ^ a >> 7);
    return a;
}

long pressure(const long *p, int n) {
#define TAKE(i) long x##i = p[i];
    EACH(TAKE)
    for (int k = 0; k < n; k++) {
        long t = x0;
#define TURN(i)                                                                                    \
    x##i = x##i * 3 + (t ^ p[(i + k) & 31]);                                                       \
    t += x##i >> (i & 7);
        EACH(TURN)
        x0 ^= t;
        if (t & 1) x7 += mix(x3, t);
    }
#define SUM(i) +x##i
    return 0 EACH(SUM);
}

long numbers(int n) {
    long p[32];
    for (int i = 0; i < 32; i++) p[i] = mix(i, n);
    return mix(pressure(p, n), pressure(p, n + 1));
}
