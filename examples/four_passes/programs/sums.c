/* Loops over arrays: what is in memory becomes values, and values become fewer. */
int sum(const int *x, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s += x[i] * 4 / 2;
    return s;
}
int weighted(const int *x, const int *w, int n) {
    int s = 0, all = 0;
    for (int i = 0; i < n; i++) {
        s += x[i] * w[i];
        all += w[i];
    }
    return all == 0 ? 0 : s / all;
}
int count(const int *x, int n, int low, int high) {
    int found = 0;
    for (int i = 0; i < n; i++)
        if (x[i] >= low && x[i] <= high) found++;
    return found;
}
