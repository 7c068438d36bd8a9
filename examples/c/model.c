/* A hand-written model for aot://, which runs in the compiler's process. It inlines functions with
 * fewer than LIMIT statements: 8, or the number in the file of the URL's option weights=FILE.
 *
 *     cc -O2 -shared -fPIC model.c $(shmbridge config --cflags) -o model.so */
#include <shmbridge/model.h>
#include <stdio.h>
#include <stdlib.h>

struct state {
    float limit;
};

static const char *open_model(const char *weights, void **state) {
    struct state *s = malloc(sizeof *s);
    if (!s) return "no memory";
    s->limit = 8;
    FILE *file = weights ? fopen(weights, "r") : NULL;
    const char *wrong = weights && (!file || fscanf(file, "%f", &s->limit) != 1)
                            ? "expected a file with a number"
                            : NULL;
    if (file) fclose(file);
    if (wrong) free(s);
    else *state = s;
    return wrong;
}

/* Each runner has its own state, so nothing here needs a lock. */
static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    const struct state *s = state;
    const float *features = inputs[0].data;
    *(int64_t *)outputs[0].data = features[1] < s->limit;
    return NULL; /* or the error message */
}

static const int64_t sixteen[] = {16};
static const shmb_port inputs[] = {{"features", SHMB_FLOAT32, 1, sixteen}};
static const shmb_port outputs[] = {{"inline", SHMB_INT64, 0, NULL}};

const shmb_model *shmb_model_entry(void) {
    static const shmb_model model = {sizeof model, 1, 1, inputs, outputs, open_model, run, free};
    return &model;
}
