/* A histogram and, in the same loop, a statement that is free. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n; i++) {
        count[place[i] % 8]++;
        x[i] = y[i] * z[i] + u[i];
    }
}
