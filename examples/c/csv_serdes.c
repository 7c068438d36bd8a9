/* A SerDes of your own, in C: a line "name,1.5,2" for each vector of float64. What it must
 * guarantee: ../yaml_serdes/README.md.
 *
 *     cc csv_serdes.c $(shmbridge config --cflags --libs) -o csv && ./csv 'pipe:///tmp/advice?serdes=csv'
 */
#include <shmbridge/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shmb_status put(shmb_sink *bytes, const char *text) {
    void *to = shmb_sink_bytes(bytes, strlen(text));
    if (!to) return SHMB_NO_MEMORY;
    memcpy(to, text, strlen(text));
    return SHMB_OK;
}

static shmb_status encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t count,
                          shmb_dtype want, shmb_sink *bytes) {
    char text[200];
    shmb_status status = SHMB_OK;
    (void)context, (void)side, (void)want;
    for (const shmb_tensor *f = fields; f < fields + count; f++) {
        if (f->kind != SHMB_TENSOR || f->dtype != SHMB_FLOAT64 || f->rank != 1 ||
            strpbrk(f->name, ",\n") || strlen(f->name) > 99) {
            snprintf(
                text, sizeof text,
                "\"%.99s\": csv has vectors of float64, with names of up to 99 bytes without a comma",
                f->name);
            return shmb_sink_fail(bytes, SHMB_UNSUPPORTED, text);
        }
        if ((status = put(bytes, f->name))) return status;
        for (int64_t i = 0; i < f->size; i++) {
            snprintf(text, sizeof text, ",%.17g", ((const double *)f->data)[i]);
            if ((status = put(bytes, text))) return status;
        }
        if ((status = put(bytes, "\n"))) return status;
    }
    return status;
}

/* The text from *at to the next comma or newline, at most 99 bytes; moves *at behind it. */
static int cell(const char **at, const char *end, char out[100]) {
    size_t n = 0;
    while (*at < end && **at != ',' && **at != '\n' && n < 99) out[n++] = *(*at)++;
    out[n] = 0;
    return *at < end && (**at == ',' || **at == '\n') && strlen(out) == n;
}

static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message) {
    char text[100], *stop;
    const char *at = bytes, *end = at + size;
    (void)context, (void)side;
    if (want != SHMB_ANY && want != SHMB_FLOAT64)
        return shmb_sink_fail(message, SHMB_MISMATCH, "csv gives float64 alone: ask for that");
    while (at < end) {
        if (!cell(&at, end, text))
            return shmb_sink_fail(message, SHMB_CORRUPT, "expected lines \"name,1.5,2\"");
        int64_t count = 0;
        for (const char *c = at; c < end && *c != '\n'; c++) count += *c == ',';
        double *to = shmb_sink_field(message, text, SHMB_FLOAT64, SHMB_TENSOR, 1, &count, NULL);
        if (!to) return SHMB_NO_MEMORY;
        while (*at++ == ',') {
            if (!cell(&at, end, text) || (*to++ = strtod(text, &stop), stop == text || *stop))
                return shmb_sink_fail(message, SHMB_CORRUPT, "expected numbers between commas");
        }
    }
    return SHMB_OK;
}

static const shmb_serdes csv = {
    .size = sizeof csv, .name = "csv", .encode = encode, .decode = decode};

int main(int argc, char **argv) {
    shmb_runner *r;
    shmb_tensor advice;
    shmb_register_serdes(&csv);
    shmb_open(argc > 1 ? argv[1] : NULL, NULL, &r);
    shmb_set(r, "costs", SHMB_FLOAT64, 1, (const int64_t[]){3}, (const double[]){0, 0.5, 1});
    if (shmb_evaluate(r) || shmb_advice(r, NULL, &advice))
        fprintf(stderr, "no advice: %s\n", shmb_error_message(r));
    else
        for (int64_t i = 0; i < advice.size; i++) printf("%g\n", ((const double *)advice.data)[i]);
    shmb_close(r);
    return 0;
}
