/* PolyBench's gemver: a matrix plus two outer products, and two products with vectors. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) A[i][j] += p[i] * q[j] + r[i] * s[j];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) r[i] += 0.01 * A[j][i] * s[j];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) q[i] += 0.01 * A[i][j] * r[j];
}
