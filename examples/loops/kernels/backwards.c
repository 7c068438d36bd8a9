/* TSVC's s1112 in kind: from the end. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = n - 1; i >= 0; i--) x[i] = y[i] + 1.0f;
}
