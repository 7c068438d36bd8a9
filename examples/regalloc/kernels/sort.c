/* Sorts sixteen numbers by a network: all of them stay in registers, if there is room. */
static void order(long *x, long *y) {
    long a = *x, b = *y;
    *x = a < b ? a : b, *y = a < b ? b : a;
}

void sort(long *data, int n) {
    for (; n > 0; n--, data += 16) {
        long x[16];
        for (int i = 0; i < 16; i++) x[i] = data[i];
#pragma clang loop unroll(full)
        for (int p = 1; p < 16; p += p)
#pragma clang loop unroll(full)
            for (int k = p; k >= 1; k /= 2)
#pragma clang loop unroll(full)
                for (int j = k % p; j < 16 - k; j += 2 * k)
#pragma clang loop unroll(full)
                    for (int i = 0; i < k; i++)
                        if (i + j + k < 16 && (i + j) / (2 * p) == (i + j + k) / (2 * p))
                            order(&x[i + j], &x[i + j + k]);
        for (int i = 0; i < 16; i++) data[i] = x[i];
    }
}
