/* A compiler with a heuristic that can ask. The lines inside #ifdef ASK are the added ones, the
 * same for every URL. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifdef ASK
#include <shmbridge.h>
static shmb_runner *runner;
#endif

static int should_inline(const float features[16]) {
#ifdef ASK
    int64_t advice;
    memcpy(shmb_feature_f32(runner, "features", 16), features, 16 * sizeof *features);
    if (shmb_evaluate_i64(runner, &advice) == SHMB_OK) return advice != 0;
#endif
    return features[0] < 5;
}

int main(void) {
    float features[16] = {0};
#ifdef ASK
    shmb_open(NULL, NULL, &runner);
#endif
    for (int i = 0; i < 8; i++) {
        features[i] = (float)i;
        printf("%d", should_inline(features));
    }
#ifdef ASK
    shmb_close(runner);
#endif
}
