/* What kernels compute on. Sizes are those of the arrays; how much is used, only main.c knows. */
#include <stdint.h>

enum { LONG = 1024, SIDE = 64 };

extern float u[LONG], v[LONG], w[LONG], x[LONG], y[LONG], z[LONG];
extern int32_t place[LONG], count[LONG];
extern double A[SIDE][SIDE], B[SIDE][SIDE], C[SIDE][SIDE], D[SIDE][SIDE];
extern double p[SIDE], q[SIDE], r[SIDE], s[SIDE];

/* n: of the arrays, m: of the matrices' sides. */
void kernel(int n, int m);
