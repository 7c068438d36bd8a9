/* The same is loaded and computed again and again. */
struct box {
    int left, top, right, bottom;
};

int overlap(const struct box *a, const struct box *b) {
    int width =
        (a->right < b->right ? a->right : b->right) - (a->left > b->left ? a->left : b->left);
    int height =
        (a->bottom < b->bottom ? a->bottom : b->bottom) - (a->top > b->top ? a->top : b->top);
    if (width <= 0 || height <= 0) return 0;
    return width * height;
}
int polynomial(int x) {
    int a = x * x + 3 * x, b = x * x - 3 * x;
    return (x * x + 3 * x) * (x * x - 3 * x) + a * b + x * x * x + (x * x) * x;
}
int border(const struct box *a) {
    int area = (a->right - a->left) * (a->bottom - a->top);
    int inner = (a->right - a->left - 2) * (a->bottom - a->top - 2);
    return area - inner + ((a->right - a->left) - (a->right - a->left));
}
