/* PolyBench's trisolv: a triangular system, whose rows are of every length. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int i = 0; i < m; i++) {
        double sum = q[i];
        for (int j = 0; j < i; j++) sum -= 0.1 * A[i][j] * p[j];
        p[i] = sum / (1 + A[i][i]);
    }
}
