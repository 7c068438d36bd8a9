/* Small functions that are called from a place or two. */
static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }
static int between(int x, int low, int high) { return most(low, least(x, high)); }
static int scale(int x, int by) { return x * by + by / 2; }
static int mix(int a, int b) { return scale(a, 3) + scale(b, 5); }

int brightness(int red, int green, int blue) {
    return between(mix(red, green) + scale(blue, 2), 0, 255);
}
int volume(int left, int right) { return between(mix(left, right), -100, 100); }
