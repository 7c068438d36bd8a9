/* TSVC's s4112: reads through an index. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n; i++) x[i] += 0.5f * y[place[i]];
}
