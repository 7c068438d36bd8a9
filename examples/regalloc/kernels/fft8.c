/* n Fourier transforms of eight complex numbers, real and imaginary parts in turn. */
#define TURN(a, b, c, s)                                                                           \
    do {                                                                                           \
        float re = x[2 * a] - x[2 * b], im = x[2 * a + 1] - x[2 * b + 1];                          \
        x[2 * a] += x[2 * b], x[2 * a + 1] += x[2 * b + 1];                                        \
        x[2 * b] = re * (c) - im * (s), x[2 * b + 1] = re * (s) + im * (c);                        \
    } while (0)

void fft8(float *data, int n) {
    const float h = 0.70710678f;
    for (; n > 0; n--, data += 16) {
        float x[16];
        for (int i = 0; i < 16; i++) x[i] = data[i];
        TURN(0, 4, 1, 0);
        TURN(1, 5, h, -h);
        TURN(2, 6, 0, -1);
        TURN(3, 7, -h, -h);
        TURN(0, 2, 1, 0);
        TURN(1, 3, 0, -1);
        TURN(4, 6, 1, 0);
        TURN(5, 7, 0, -1);
        TURN(0, 1, 1, 0);
        TURN(2, 3, 1, 0);
        TURN(4, 5, 1, 0);
        TURN(6, 7, 1, 0);
        for (int i = 0; i < 16; i++) data[i] = x[i];
    }
}
