/* c = a * b + c, all of 4 x 4, whole in registers, in a chain of n. */
void product4(double c[16], const double *a, const double *b, int n) {
    double r[16];
    for (int i = 0; i < 16; i++) r[i] = c[i];
    for (; n > 0; n--, a += 16, b += 16)
#pragma clang loop unroll(full)
        for (int i = 0; i < 4; i++)
#pragma clang loop unroll(full)
            for (int j = 0; j < 4; j++)
                r[4 * i + j] += a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] +
                                a[4 * i + 2] * b[8 + j] + a[4 * i + 3] * b[12 + j];
    for (int i = 0; i < 16; i++) c[i] = r[i];
}
