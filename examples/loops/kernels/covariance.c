/* PolyBench's covariance of the columns of A. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int j = 0; j < m; j++) {
        double sum = 0;
        for (int i = 0; i < m; i++) sum += A[i][j];
        p[j] = sum / m;
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) A[i][j] -= p[j];
    for (int i = 0; i < m; i++)
        for (int j = i; j < m; j++) {
            double sum = 0;
            for (int k = 0; k < m; k++) sum += A[k][i] * A[k][j];
            C[i][j] = C[j][i] = sum / (m - 1);
        }
}
