/* PolyBench's floyd-warshall: the shortest ways between all pairs. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)n;
    for (int k = 0; k < m; k++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++) {
                double by = A[i][k] + A[k][j];
                A[i][j] = A[i][j] < by ? A[i][j] : by;
            }
}
