/* Rows of seven: too short for what is wide. */
#include "kernel.h"

void kernel(int n, int m) {
    for (int i = 0; i + 7 < n; i += 7) {
        int length = 5 + (i + m) % 3;
        for (int j = 0; j < length; j++) x[i + j] = y[i + j] * z[j] + x[i + j];
    }
}
