/* A small program to inline in, for the quick form. */

int read_number(void);
void write_number(int);

static int square(int x) { return x * x; }
static int power(int x, int n) {
    int p = 1;
    for (int i = 0; i < n; i++) p *= x;
    return p;
}
static int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
static int digits(int x) {
    int n = 1;
    while (x /= 10) n++;
    return n;
}
static int checksum(const int *x, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s = s * 31 + clamp(x[i], -9, 9) + digits(x[i]);
    return s;
}
static int once(int x) {
    write_number(power(x, 5));
    write_number(clamp(x, 0, 5));
    write_number(digits(x) + square(x));
    return power(x, 2);
}

int first(const int *x, int n) { return checksum(x, n) + square(read_number()); }
int second(const int *x, int n) { return clamp(checksum(x, n), 0, 100) * power(x[0], n); }
int third(int n) { return once(n) + clamp(read_number(), n, n + 3); }
int fourth(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) s += digits(power(i, 3)) + square(clamp(i, 3, 8)) + digits(s);
    return s;
}
