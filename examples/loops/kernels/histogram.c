/* Counts: two elements may be one. */
#include "kernel.h"

void kernel(int n, int m) {
    (void)m;
    for (int i = 0; i < n; i++) count[place[i] % 8]++;
}
