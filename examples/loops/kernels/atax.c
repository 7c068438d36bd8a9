/* PolyBench's atax: A transposed, times A, times a vector. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int i = 0; i < m; i++) r[i] = 0;
    for (int i = 0; i < m; i++) {
        double sum = 0;
        for (int j = 0; j < m; j++) sum += A[i][j] * p[j];
        for (int j = 0; j < m; j++) r[j] += A[i][j] * sum;
    }
}
