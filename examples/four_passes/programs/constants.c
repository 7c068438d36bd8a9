/* A constant result is computed at the end, although it is not needed. */
static int debug = 0;
static int log_level = 2;
static int traced;

static void trace(int level, int what) {
    if (debug && level > log_level) traced += what;
}
static int power(int x, int n, int check) {
    int p = 1;
    if (check && n < 0) {
        trace(3, n);
        return 0;
    }
    for (int i = 0; i < n; i++) p *= x;
    trace(1, p);
    return p;
}
int area(int x) {
    trace(2, x);
    return power(x, 2, 0);
}
int room(int x) {
    trace(2, x);
    if (debug) traced = 0;
    return power(x, 3, 0);
}
