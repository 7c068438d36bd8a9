/* TSVC's s2244 in kind: what is read next is written first. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n - 1; i++) {
        x[i + 1] = y[i] + v[i];
        x[i] = y[i] + z[i];
        w[i] = 0.5f * x[i];
    }
}
