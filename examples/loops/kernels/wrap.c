/* TSVC's s291: the last element before the first. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    int last = n - 1;
    for (int i = 0; i < n; i++) {
        x[i] = 0.5f * (y[i] + y[last]);
        last = i;
    }
}
