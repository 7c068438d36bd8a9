/* TSVC's s271: a store only where something is positive. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n; i++)
        if (y[i] > 0.5f) x[i] += y[i] * z[i];
}
