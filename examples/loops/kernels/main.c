/* Runs a kernel argv[1] times on numbers that are always the same, and prints a sum of what came out. */
#include "kernel.h"
#include <stdio.h>
#include <stdlib.h>

float u[LONG], v[LONG], w[LONG], x[LONG], y[LONG], z[LONG];
int32_t place[LONG], count[LONG];
double A[SIDE][SIDE], B[SIDE][SIDE], C[SIDE][SIDE], D[SIDE][SIDE];
double p[SIDE], q[SIDE], r[SIDE], s[SIDE];

static uint32_t state = 1;
static double next(void) {
    state = state * 1664525u + 1013904223u;
    return 0.25 + (state >> 8) / 33554432.0; /* 0.25 to 0.75 */
}

static void fill(void) {
    for (int i = 0; i < LONG; i++) {
        u[i] = (float)next(), v[i] = (float)next(), w[i] = (float)next();
        x[i] = (float)next(), y[i] = (float)next(), z[i] = (float)next();
        place[i] = i * 37 % LONG, count[i] = i % 7;
    }
    for (int i = 0; i < SIDE; i++) {
        p[i] = next(), q[i] = next(), r[i] = next(), s[i] = next();
        for (int j = 0; j < SIDE; j++)
            A[i][j] = next(), B[i][j] = next(), C[i][j] = next(), D[i][j] = next();
    }
}

int main(int argc, char **argv) {
    int n = 501, m = 37; /* of no power of two */
    double sum = 0;
    fill();
    for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) kernel(n, m);
    for (int i = 0; i < LONG; i++)
        sum += u[i] + v[i] + w[i] + x[i] + y[i] + z[i] + 1e-3 * place[i] + 1e-3 * count[i];
    for (int i = 0; i < SIDE; i++) {
        sum += p[i] + q[i] + r[i] + s[i];
        for (int j = 0; j < SIDE; j++) sum += A[i][j] + B[i][j] + C[i][j] + D[i][j];
    }
    printf("sum %.9g\n", sum);
}
