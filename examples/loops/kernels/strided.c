/* TSVC's s111 in kind: every second element. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 1; i < n; i += 2) x[i] = x[i - 1] + y[i];
}
