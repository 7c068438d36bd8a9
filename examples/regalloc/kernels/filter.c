/* A cascade of five filters, each with two numbers of memory and five coefficients. */
void filter(const double *in, double *out, const double c[25], double memory[10], int n) {
    double a[5], b[5];
    for (int i = 0; i < 5; i++) a[i] = memory[2 * i], b[i] = memory[2 * i + 1];
    for (int k = 0; k < n; k++) {
        double x = in[k];
#pragma clang loop unroll(full)
        for (int i = 0; i < 5; i++) {
            double y = c[5 * i] * x + a[i];
            a[i] = c[5 * i + 1] * x - c[5 * i + 3] * y + b[i];
            b[i] = c[5 * i + 2] * x - c[5 * i + 4] * y;
            x = y;
        }
        out[k] = x;
    }
    for (int i = 0; i < 5; i++) memory[2 * i] = a[i], memory[2 * i + 1] = b[i];
}
