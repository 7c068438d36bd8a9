/* Loops in loops, by way of small functions. */
static int at(const int *m, int n, int i, int k) { return m[i * n + k]; }
static void put(int *m, int n, int i, int k, int value) { m[i * n + k] = value; }

void multiply(const int *a, const int *b, int *c, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            int s = 0;
            for (int j = 0; j < n; j++) s += at(a, n, i, j) * at(b, n, j, k);
            put(c, n, i, k, s);
        }
}
void transpose(const int *a, int *b, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) put(b, n, k, i, at(a, n, i, k));
}
int trace(const int *a, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s += at(a, n, i, i);
    return s;
}
