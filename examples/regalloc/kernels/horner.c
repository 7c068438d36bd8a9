/* Six polynomials of the same x at once, summed by groups: each has its coefficients in memory. */
void horner(const double *x, double *y, const double (*c)[6], int degree, int n) {
    for (int i = 0; i < n; i++) {
        double p = 0, q = 0, r = 0, s = 0, t = 0, u = 0, z = x[i];
        double dp = 0, dq = 0, dr = 0, ds = 0, dt = 0, du = 0;
        for (int k = degree; k >= 0; k--) {
            dp = dp * z + p, dq = dq * z + q, dr = dr * z + r;
            ds = ds * z + s, dt = dt * z + t, du = du * z + u;
            p = p * z + c[k][0], q = q * z + c[k][1], r = r * z + c[k][2];
            s = s * z + c[k][3], t = t * z + c[k][4], u = u * z + c[k][5];
        }
        y[i] = p * dq - q * dp + r * ds - s * dr + t * du - u * dt;
    }
}
