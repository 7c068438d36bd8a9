/* A hash table of numbers. */
enum { SIZE = 256 };
struct table {
    unsigned keys[SIZE], values[SIZE], used;
};
static unsigned mix(unsigned x) {
    x ^= x >> 16, x *= 0x7feb352dU;
    x ^= x >> 15, x *= 0x846ca68bU;
    return x ^ x >> 16;
}
static unsigned next(unsigned i) { return (i + 1) % SIZE; }
static unsigned find(const struct table *t, unsigned key) {
    unsigned i = mix(key) % SIZE;
    while (t->keys[i] && t->keys[i] != key) i = next(i);
    return i;
}
static int full(const struct table *t) { return t->used > SIZE * 3 / 4; }
static unsigned get(const struct table *t, unsigned key) { return t->values[find(t, key)]; }
static int put(struct table *t, unsigned key, unsigned value) {
    unsigned i = find(t, key);
    if (!t->keys[i] && full(t)) return 0;
    t->used += !t->keys[i];
    t->keys[i] = key, t->values[i] = value;
    return 1;
}
int count(struct table *t, unsigned key) { return put(t, key, get(t, key) + 1); }
int add(struct table *t, unsigned key, unsigned n) { return put(t, key, get(t, key) + n); }
int copy(struct table *to, const struct table *from) {
    for (unsigned i = 0; i < SIZE; i++)
        if (from->keys[i] && !put(to, from->keys[i], from->values[i])) return 0;
    return 1;
}
unsigned both(const struct table *t, unsigned a, unsigned b) { return get(t, a) + get(t, b); }
