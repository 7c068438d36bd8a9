extern void report(int, int, int);

static int mix(int a, int b) {
    report(a, b, 1);
    report(b, a, 2);
    report(a + b, a - b, 3);
    return a * b + 7;
}

static int twice(int x) { return mix(x, x + 1) + mix(x + 2, x); }

static int small(int x, int y) { return x > y ? x - y : y - x; }

static int table(int kind, int x) {
    switch (kind) {
    case 0: return small(x, 3);
    case 1: return twice(x);
    case 2: return x * 5 + small(x, 9);
    case 3: return x / 7;
    default: return x;
    }
}

int first(int x) { return table(0, x) + table(3, x) + small(x, 1); }
int second(int x) { return table(1, x) + small(x, 2); }
int third(int x, int k) { return table(k, x) + table(k + 1, x); }
int fourth(int x) { return table(2, x) * small(x, 4) + small(x * 2, 5); }
