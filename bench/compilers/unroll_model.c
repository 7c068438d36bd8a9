/* examples/unroll/policy.py as a library for aot://. */
#include <shmbridge/model.h>

enum { BLOCKS = 2, INSTRUCTIONS, MEMORY, CALLS, FEATURES, MOST = 64 };

static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    const int64_t *loop = inputs[0].data;
    int64_t count = 1;
    (void)state;
    if (loop[BLOCKS] == 1 && !loop[CALLS])
        while (count < 8 && 2 * count * loop[INSTRUCTIONS] <= MOST) count *= 2;
    *(int64_t *)outputs[0].data = count;
    return NULL;
}

static const int64_t features[] = {FEATURES};
static const shmb_port inputs[] = {{"loop", SHMB_INT64, 1, features}};
static const shmb_port outputs[] = {{"count", SHMB_INT64, 0, NULL}};

const shmb_model *shmb_model_entry(void) {
    static const shmb_model model = {sizeof model, 1, 1, inputs, outputs, NULL, run, NULL};
    return &model;
}
