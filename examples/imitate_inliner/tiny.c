/* A small program, another one for each N: for `run.py --quick`. */
static int clamp(int x, int most) { return x < 0 ? 0 : x > most ? most : x; }
static int sum(const int *x, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s += clamp(x[i], N) * N;
    return s;
}
static int most(const int *x, int n) {
    int m = x[0];
    for (int i = N; i < n; i++)
        if (x[i] > m) m = x[i] - clamp(m, i);
    return m;
}
static int once(int x) {
    for (int i = 0; i < N; i++) x = x * 5 + clamp(x, i);
    return x;
}
int first(const int *x, int n) { return sum(x, n) - most(x, N); }
int second(const int *x, int n) { return sum(x, N) * clamp(most(x, n), sum(x, n)); }
int third(int x) { return once(x) + clamp(x, 7); }
