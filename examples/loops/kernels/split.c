/* TSVC's s221: the second statement needs its own last result, the first does not. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 1; i < n; i++) {
        x[i] += z[i] * u[i];
        y[i] = 0.5f * y[i - 1] + x[i] + u[i];
    }
}
