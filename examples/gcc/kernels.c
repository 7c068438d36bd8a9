/* Small loops of many kinds. -DKERNEL=NAME makes a program that calls one of them. */

#include <stdio.h>

enum { N = 1200 };

struct node {
    struct node *next;
    int value;
};

/* What a kernel works on: numbers, text that ends with a zero, and a list. */
static int a[N], b[N], rows[N][3];
static double x[N + 8], y[N];
static unsigned char text[N + 1];
static struct node nodes[N];

/* gcc looks at none of them from outside: what it knows is what the loop says. */
#define LOOP(name) static __attribute__((noipa)) long name(int n __attribute__((unused)))

LOOP(sum) {
    long s = 0;
    for (int i = 0; i < n; i++) s += a[i];
    return s;
}

LOOP(dot) {
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * y[i];
    return (long)s;
}

LOOP(axpy) {
    for (int i = 0; i < n; i++) y[i] += 3 * x[i];
    return (long)y[n / 2];
}

LOOP(prefix) {
    for (int i = 1; i < n; i++) b[i] = b[i - 1] + a[i];
    return b[n - 1];
}

LOOP(largest) {
    int most = 0;
    for (int i = 1; i < n; i++)
        if (a[i] > a[most]) most = i;
    return most;
}

LOOP(count) {
    int found = 0;
    for (int i = 0; i < n; i++) found += a[i] == 7;
    return found;
}

LOOP(length) {
    const unsigned char *end = text;
    while (*end) end++;
    return end - text;
}

LOOP(hash) {
    unsigned h = 2166136261u;
    for (const unsigned char *s = text; *s; s++) h = (h ^ *s) * 16777619u;
    return h;
}

LOOP(list) {
    long s = 0;
    for (struct node *p = nodes; p; p = p->next) s += p->value;
    return s;
}

LOOP(histogram) {
    for (int i = 0; i < n; i++) b[text[i]]++;
    return b['k'];
}

LOOP(horner) {
    double value = 0;
    for (int i = 0; i < n; i++) value = value * 0.5 + x[i];
    return (long)value;
}

LOOP(filter) { /* few rounds of the inner loop, whose number gcc does not know */
    int taps = n % 7 + 1;
    for (int i = 0; i < n; i++) {
        double s = 0;
        for (int t = 0; t < taps; t++) s += x[i + t] * y[t];
        y[i] = s;
    }
    return (long)y[0];
}

LOOP(thirds) { /* three rounds, which gcc knows */
    long s = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++) s += rows[i][j] * j;
    return s;
}

LOOP(crc) { /* eight rounds, which gcc knows */
    unsigned r = ~0u;
    for (int i = 0; i < n; i++) {
        r ^= text[i];
        for (int bit = 0; bit < 8; bit++) r = r & 1 ? r >> 1 ^ 0xedb88320u : r >> 1;
    }
    return r;
}

LOOP(bits) { /* as many rounds as a number has ones */
    long s = 0;
    for (int i = 0; i < n; i++)
        for (unsigned v = (unsigned)a[i]; v; v &= v - 1) s++;
    return s;
}

LOOP(gcd) {
    long s = 0;
    for (int i = 1; i < n; i++) {
        int p = i, q = n;
        while (q) {
            int r = p % q;
            p = q, q = r;
        }
        s += p;
    }
    return s;
}

LOOP(insertion) { /* a sort of what is almost sorted: no round or one, mostly */
    for (int i = 1; i < n; i++) {
        int v = b[i] = i ^ (i % 5 == 0), j = i;
        for (; j && b[j - 1] > v; j--) b[j] = b[j - 1];
        b[j] = v;
    }
    return b[n / 2];
}

LOOP(reverse) {
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        int v = a[i];
        a[i] = a[j], a[j] = v;
    }
    return a[0];
}

LOOP(smooth) {
    for (int i = 1; i < n - 1; i++) y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3;
    return (long)y[n / 2];
}

LOOP(mismatch) { /* from one difference to the next */
    long s = 0;
    for (int i = 0; i < n; i++) {
        while (i < n && a[i] == rows[i][0]) i++;
        s += i;
    }
    return s;
}

int main(void) {
#pragma GCC unroll 1
    for (int i = 0; i < N; i++) {
        a[i] = rows[i][0] = i * 37 % 101;
        rows[i][1] = rows[i][2] = i;
        if (i % 50 == 0) rows[i][0]++;
        x[i] = i % 9, y[i] = i % 4;
        text[i] = (unsigned char)('a' + i % 26);
        nodes[i] = (struct node){i + 1 < N ? &nodes[i + 1] : NULL, i};
    }
    long s = 0;
#pragma GCC unroll 1
    for (int i = 0; i < 60; i++) s += KERNEL(N - i);
    printf("%ld\n", s);
    return 0;
}
