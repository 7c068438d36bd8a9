/* PolyBench's 2mm: D = A * B * C + D. */
#include "kernel.h"

void kernel(int n, int m) {
    static double t[SIDE][SIDE];
    (void)n;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            t[i][j] = 0;
            for (int k = 0; k < m; k++) t[i][j] += A[i][k] * B[k][j];
        }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            double sum = D[i][j] * 0.5;
            for (int k = 0; k < m; k++) sum += t[i][k] * C[k][j];
            D[i][j] = sum;
        }
}
