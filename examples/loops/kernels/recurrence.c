/* TSVC's s322: each element needs the two before it. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 2; i < n; i++) x[i] += 0.25f * x[i - 1] * y[i] + 0.25f * x[i - 2] * z[i];
}
