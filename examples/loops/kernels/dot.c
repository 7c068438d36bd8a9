/* TSVC's s352: a dot product, by hand five at a time. */
#include "kernel.h"

void kernel(int n, int m) {
    float sum = 0;
    for (int i = 0; i + 4 < n; i += 5)
        sum += x[i] * y[i] + x[i + 1] * y[i + 1] + x[i + 2] * y[i + 2] + x[i + 3] * y[i + 3] +
               x[i + 4] * y[i + 4];
    z[m] = sum;
}
