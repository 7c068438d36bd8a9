/* A model for test_aot.c. $AOT_CASE says what is wrong with it. run: the sum of x and of the
 * weights' file's length, and x doubled, which is as long as x is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shmbridge/model.h"

struct state {
    float extra;
    int64_t dims[1];
    float *doubled;
    const char *fault;
};

static const char *fault(void) { return getenv("AOT_CASE") ? getenv("AOT_CASE") : ""; }

static const char *open_model(const char *weights, void **state) {
    struct state *s = calloc(1, sizeof *s);
    if (!s || strcmp(fault(), "open") == 0) {
        free(s);
        return "not today";
    }
    s->extra = weights ? (float)strlen(weights) : 0;
    s->fault = fault();
    *state = s;
    return NULL;
}

static const char *run(void *state, const shmb_tensor *in, shmb_tensor *out) {
    struct state *s = state;
    const float *x = in[0].data;
    float sum = s->extra;
    if (x[0] < 0) return "expected a positive x";
    free(s->doubled);
    s->doubled = aligned_alloc(64, ((size_t)in[0].size * sizeof *x + 127) / 64 * 64);
    for (int64_t i = 0; i < in[0].size; i++) sum += x[i], s->doubled[i] = 2 * x[i];
    *(float *)(uintptr_t)out[0].data = sum;
    s->dims[0] = in[0].size;
    out[1].dims = strcmp(s->fault, "no dims") == 0 ? NULL : s->dims;
    out[1].size = in[0].size + (strcmp(s->fault, "size") == 0);
    out[1].data = s->doubled + (strcmp(s->fault, "unaligned") == 0);
    return NULL;
}

static void close_model(void *state) {
    struct state *s = state;
    free(s->doubled);
    free(s);
}

static const int64_t any[] = {-1}, wrong[] = {-2}, huge[] = {INT64_MAX, 3};
static const shmb_port in[] = {{"x", SHMB_FLOAT32, 1, any}},
                       twice[] = {{"x", SHMB_FLOAT32, 1, any}, {"x", SHMB_FLOAT32, 1, any}};
static const shmb_port unnamed[] = {{NULL, SHMB_FLOAT32, 1, any}},
                       odd[] = {{"x", (shmb_dtype)77, 1, any}},
                       deep[] = {{"x", SHMB_FLOAT32, 9, any}};
static const shmb_port nowhere[] = {{"x", SHMB_FLOAT32, 1, NULL}},
                       negative[] = {{"x", SHMB_FLOAT32, 1, wrong}},
                       empty[] = {{"", SHMB_FLOAT32, 1, any}};
static const shmb_port out[] = {{"sum", SHMB_FLOAT32, 0, NULL}, {"doubled", SHMB_FLOAT32, 1, any}},
                       large[] = {{"y", SHMB_FLOAT32, 2, huge}};

__attribute__((visibility("default"))) const shmb_model *shmb_model_entry(void) {
    static const struct {
        const char *fault;
        shmb_model model;
    } models[] = {
        {"size of struct", {8, 1, 2, in, out, open_model, run, close_model}},
        {"no run", {sizeof(shmb_model), 1, 2, in, out, open_model, NULL, close_model}},
        {"no inputs", {sizeof(shmb_model), 1, 2, NULL, out, open_model, run, close_model}},
        {"count", {sizeof(shmb_model), -1, 2, in, out, open_model, run, close_model}},
        {"twice", {sizeof(shmb_model), 2, 2, twice, out, open_model, run, close_model}},
        {"unnamed", {sizeof(shmb_model), 1, 2, unnamed, out, open_model, run, close_model}},
        {"empty name", {sizeof(shmb_model), 1, 2, empty, out, open_model, run, close_model}},
        {"dtype", {sizeof(shmb_model), 1, 2, odd, out, open_model, run, close_model}},
        {"rank", {sizeof(shmb_model), 1, 2, deep, out, open_model, run, close_model}},
        {"no dims of a port",
         {sizeof(shmb_model), 1, 2, nowhere, out, open_model, run, close_model}},
        {"negative", {sizeof(shmb_model), 1, 2, negative, out, open_model, run, close_model}},
        {"no outputs", {sizeof(shmb_model), 1, 0, in, out, open_model, run, close_model}},
        {"too large", {sizeof(shmb_model), 1, 1, in, large, open_model, run, close_model}},
        {"no open", {sizeof(shmb_model), 1, 2, in, out, NULL, run, NULL}},
    };
    static const shmb_model right = {sizeof right, 1, 2, in, out, open_model, run, close_model};
    if (strcmp(fault(), "NULL") == 0) return NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(fault(), models[i].fault) == 0) return &models[i].model;
    return &right;
}
