/* TSVC's s315: the greatest element, and where it is. */
#include "kernel.h"

void kernel(int n, int m) {
    float best = x[0];
    int where = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > best) best = x[i], where = i;
    y[m] = best + (float)where;
}
