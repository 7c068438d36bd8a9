/* Three bodies that attract each other: eighteen numbers of state and three masses. */
#define PULL(i, j)                                                                                 \
    do {                                                                                           \
        double x = p[3 * i] - p[3 * j], y = p[3 * i + 1] - p[3 * j + 1];                           \
        double z = p[3 * i + 2] - p[3 * j + 2], q = x * x + y * y + z * z + 0.01;                  \
        double f = dt / (q * q);                                                                   \
        v[3 * i] -= x * f * m[j], v[3 * j] += x * f * m[i];                                        \
        v[3 * i + 1] -= y * f * m[j], v[3 * j + 1] += y * f * m[i];                                \
        v[3 * i + 2] -= z * f * m[j], v[3 * j + 2] += z * f * m[i];                                \
    } while (0)

void bodies(double place[9], double speed[9], const double mass[3], double dt, int steps) {
    double p[9], v[9], m[3] = {mass[0], mass[1], mass[2]};
    for (int i = 0; i < 9; i++) p[i] = place[i], v[i] = speed[i];
    for (; steps > 0; steps--) {
        PULL(0, 1);
        PULL(0, 2);
        PULL(1, 2);
        for (int i = 0; i < 9; i++) p[i] += v[i] * dt;
    }
    for (int i = 0; i < 9; i++) place[i] = p[i], speed[i] = v[i];
}
