/* TSVC's s222 in kind: a recurrence between two statements that are free. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 1; i < n; i++) {
        x[i] += y[i] * z[i];
        v[i] = 0.5f * v[i - 1] * v[i - 1];
        w[i] = x[i] - y[i] * z[i] + u[i];
    }
}
