/* A queue in an array, whose checks are switched off. */
static const int checks = 0;
static int errors;

static void check(int ok) {
    if (checks && !ok) errors++;
}
static void swap(int *a, int *b) {
    int c = *a;
    *a = *b;
    *b = c;
}
static int parent(int i) { return (i - 1) / 2; }

void push(int *heap, int n, int value) {
    int i = n;
    check(n >= 0);
    heap[i] = value;
    while (i > 0 && heap[parent(i)] > heap[i]) {
        swap(&heap[parent(i)], &heap[i]);
        i = parent(i);
    }
}
int pop(int *heap, int n) {
    int top = heap[0], i = 0;
    check(n > 0);
    heap[0] = heap[n - 1];
    for (;;) {
        int next = 2 * i + 1;
        if (next >= n - 1) break;
        if (next + 1 < n - 1 && heap[next + 1] < heap[next]) next++;
        if (heap[i] <= heap[next]) break;
        swap(&heap[i], &heap[next]);
        i = next;
    }
    return top;
}
