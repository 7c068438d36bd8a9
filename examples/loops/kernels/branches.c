/* TSVC's s2711 in kind: one of two ways, each with a division. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n; i++) {
        if (x[i] < y[i]) z[i] = x[i] / (1 + y[i]);
        else z[i] = y[i] / (1 + x[i]) + w[i];
    }
}
