/* aot:// loads a library, checks what it declares, and asks it; every fault of the library is an
 * error that says what was expected. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shmbridge.h"

#define MODULE MODULES "/module_aot.so"

static void expect(const char *url, shmb_status status, const char *text) {
    shmb_runner *r;
    shmb_status found = shmb_open(url, NULL, &r);
    const char *said = shmb_error_message(r);
    if (found != status || !strstr(said, text))
        fprintf(stderr, "%s: %d \"%s\", expected %d \"%s\"\n", url, found, said, status, text);
    assert(found == status && strstr(said, text));
    shmb_close(r);
}

static void ask(shmb_runner *r, int64_t n, float extra) {
    float *x = shmb_feature_f32(r, "x", n), sum = extra;
    for (int64_t i = 0; i < n; i++) sum += x[i] = (float)(i + n);
    shmb_set_i64(r, "of no interest", 1);
    assert(shmb_evaluate(r) == SHMB_OK && shmb_advice_count(r) == 2);
    shmb_tensor t;
    assert(shmb_advice(r, "sum", &t) == SHMB_OK && t.rank == 0 && *(const float *)t.data == sum);
    assert(shmb_advice(r, "doubled", &t) == SHMB_OK && t.rank == 1 && t.dims[0] == n &&
           (uintptr_t)t.data % 64 == 0);
    for (int64_t i = 0; i < n; i++) assert(((const float *)t.data)[i] == 2 * (float)(i + n));
}

static void *many(void *context) {
    shmb_runner *r;
    assert(shmb_open(context, NULL, &r) == SHMB_OK);
    for (int64_t i = 0; i < 2000; i++) ask(r, 1 + i % 50, 0);
    shmb_close(r);
    return NULL;
}

int main(void) {
    shmb_runner *r;
    assert(shmb_open("aot://" MODULE "?weights=12345", NULL, &r) == SHMB_OK);
    shmb_port p;
    assert(shmb_expected_count(r, NULL) == 1 && shmb_expected_at(r, NULL, 0, &p) == SHMB_OK);
    assert(strcmp(p.name, "x") == 0 && p.dtype == SHMB_FLOAT32 && p.rank == 1 && p.dims[0] == -1);
    assert(shmb_expected_at(r, NULL, 1, &p) == SHMB_INVALID &&
           strstr(shmb_error_message(r), "the model expects 1"));
    assert(shmb_expected_at(r, NULL, -1, &p) == SHMB_INVALID &&
           shmb_expected_count(r, "nobody") == -1);
    assert(shmb_expected_count(NULL, NULL) == -1 &&
           shmb_expected_at(NULL, NULL, 0, &p) == SHMB_NO_MEMORY);
    for (int64_t n = 1; n < 300; n += 37) ask(r, n, 5);
    ask(r, 3, 5);
    *shmb_feature_f32(r, "x", 1) = -1; /* the model's own error, after which it goes on */
    assert(shmb_evaluate(r) == SHMB_MODEL &&
           strcmp(shmb_error_message(r), "expected a positive x") == 0);
    ask(r, 3, 5);
    shmb_feature(r, "x", SHMB_FLOAT64, 1, &(int64_t){1});
    assert(shmb_evaluate(r) == SHMB_MISMATCH && strstr(shmb_error_message(r), "float32[?]") &&
           strstr(shmb_error_message(r), "float64[1]"));
    shmb_close(r);

    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        assert(pthread_create(&threads[i], NULL, many, "aot://" MODULE) == 0);
    for (int i = 0; i < 8; i++) assert(pthread_join(threads[i], NULL) == 0);

    assert(chdir(MODULES) == 0); /* relative to the working directory, never the library path */
    assert(shmb_open("aot://module_aot.so", NULL, &r) == SHMB_OK);
    ask(r, 2, 0);
    shmb_close(r);
    expect("aot://libc.so.6", SHMB_INVALID, "libc.so.6");
    expect("aot://", SHMB_INVALID, "names no file");
    expect("aot://" MODULE "?threads=2", SHMB_INVALID, "expected weights, ");
    expect("aot:///proc/self/exe", SHMB_INVALID, "/proc/self/exe");
    expect("aot:///etc/passwd", SHMB_INVALID, "shmbridge compile: looked at /etc/passwd (");

    static const struct {
        const char *fault, *url;
        shmb_status status;
        const char *text;
    } faults[] = {
        {"NULL", MODULE, SHMB_INVALID, "found NULL"},
        {"size of struct", MODULE, SHMB_INCOMPATIBLE, "found 8"},
        {"no run", MODULE, SHMB_INVALID, "function run"},
        {"no inputs", MODULE, SHMB_INVALID, "no pointer"},
        {"count", MODULE, SHMB_INVALID, "found -1"},
        {"twice", MODULE, SHMB_INVALID, "x"},
        {"unnamed", MODULE, SHMB_INVALID, "a name"},
        {"empty name", MODULE, SHMB_INVALID, "name"},
        {"dtype", MODULE, SHMB_INVALID, "unknown"},
        {"rank", MODULE, SHMB_INVALID, "rank 9"},
        {"no dims of a port", MODULE, SHMB_INVALID, "no dims"},
        {"negative", MODULE, SHMB_INVALID, "found -2"},
        {"no outputs", MODULE, SHMB_INVALID, "at least one output"},
        {"too large", MODULE, SHMB_INVALID, "larger than memory"},
        {"open", MODULE, SHMB_INVALID, "not today"},
        {"no open", MODULE "?weights=w", SHMB_INVALID, "takes no file of weights"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char url[4096];
        snprintf(url, sizeof url, "aot://%s", faults[i].url);
        assert(setenv("AOT_CASE", faults[i].fault, 1) == 0);
        expect(url, faults[i].status, faults[i].text);
    }
    static const char *const lies[] = {"no dims", "size", "unaligned"};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        assert(setenv("AOT_CASE", lies[i], 1) == 0);
        assert(shmb_open("aot://" MODULE, NULL, &r) == SHMB_OK);
        *shmb_feature_f32(r, "x", 1) = 1;
        assert(shmb_evaluate(r) == SHMB_MODEL && strstr(shmb_error_message(r), "\"doubled\"") &&
               shmb_advice_count(r) == 0);
        shmb_close(r);
    }
}
