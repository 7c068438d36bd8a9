/* A small neural network's layer: twelve inputs, ten outputs, both kept while the weights pass by. */
void layer(const float *in, float *out, const float *weights, int n) {
    float x[12], y[10] = {0};
    for (; n > 0; n--, in += 12) {
        for (int i = 0; i < 12; i++) x[i] = in[i];
#pragma clang loop unroll(full)
        for (int j = 0; j < 10; j++)
#pragma clang loop unroll(full)
            for (int i = 0; i < 12; i++) y[j] += x[i] * weights[12 * j + i];
#pragma clang loop unroll(full)
        for (int j = 0; j < 10; j++) y[j] = y[j] > 0 ? y[j] : y[j] * 0.125f;
    }
    for (int j = 0; j < 10; j++) out[j] = y[j];
}
