/* Functions of other names and types that do the same. */
struct point {
    int x, y;
};
struct size {
    int width, height;
};

int distance(struct point *a, struct point *b) {
    int x = a->x - b->x, y = a->y - b->y;
    return (x < 0 ? -x : x) + (y < 0 ? -y : y);
}
int difference(struct size *a, struct size *b) {
    int x = a->width - b->width, y = a->height - b->height;
    return (x < 0 ? -x : x) + (y < 0 ? -y : y);
}
long dot(const int *a, const int *b, int n) {
    long s = 0;
    for (int i = 0; i < n; i++) s += (long)a[i] * b[i];
    return s;
}
long price(const int *count, const int *each, int n) {
    long s = 0;
    for (int i = 0; i < n; i++) s += (long)count[i] * each[i];
    return s;
}
int all_positive(const int *x, int n) {
    for (int i = 0; i < n; i++)
        if (x[i] <= 0) return 0;
    return 1;
}
int all_paid(const int *x, int n) {
    for (int i = 0; i < n; i++)
        if (x[i] <= 0) return 0;
    return 1;
}
