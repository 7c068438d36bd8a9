/* Small matrices: helpers that constants make smaller, and one that nothing does. */
static double at(const double *m, int n, int i, int j) { return m[i * n + j]; }
static void set(double *m, int n, int i, int j, double x) { m[i * n + j] = x; }
static double dot(const double *a, const double *b, int n, int i, int j) {
    double s = 0;
    for (int k = 0; k < n; k++) s += at(a, n, i, k) * at(b, n, k, j);
    return s;
}
static void multiply(double *c, const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) set(c, n, i, j, dot(a, b, n, i, j));
}
static void swap(double *m, int n, int a, int b) {
    for (int k = 0; k < n; k++) {
        double x = at(m, n, a, k);
        set(m, n, a, k, at(m, n, b, k));
        set(m, n, b, k, x);
    }
}
void square(double *c, const double *a, int n) { multiply(c, a, a, n); }
void cube4(double *c, double *t, const double *a) {
    multiply(t, a, a, 4);
    multiply(c, t, a, 4);
}
void reverse(double *m, int n) {
    for (int i = 0; i < n / 2; i++) swap(m, n, i, n - 1 - i);
}
double trace3(const double *m) { return at(m, 3, 0, 0) + at(m, 3, 1, 1) + at(m, 3, 2, 2); }
void first(double *m, int n) { swap(m, n, 0, n - 1); }
