/* PolyBench's seidel-2d: a stencil in place, each point of which needs the one before it. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int i = 1; i < m - 1; i++)
        for (int j = 1; j < m - 1; j++)
            A[i][j] = 0.125 * (A[i - 1][j - 1] + A[i - 1][j] + A[i - 1][j + 1] + A[i][j - 1] +
                               A[i][j + 1] + A[i + 1][j - 1] + A[i + 1][j] + A[i + 1][j + 1]);
}
