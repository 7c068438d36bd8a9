/* The compiler's side in C: float32[BYTES / 4] in, one scalar out, repeatedly. It writes every
 * byte.
 *     runner NAME WAIT [CORE [any]]      NAME: a bridge's, or a URL; WAIT: as in a URL; any: advice
 *                                        of any dtype, otherwise int64 */
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "block.h"
#include "shmbridge.h"

static shmb_runner *r;
static bool any;

static void trip(size_t bytes) {
    static unsigned turn;
    int64_t advice;
    float *features = shmb_feature_f32(r, "features", (int64_t)(bytes / sizeof(float)));
    memset(features, 0x3e + (++turn & 1), bytes); /* floats of ordinary size */
    if ((any ? shmb_evaluate(r) : shmb_evaluate_i64(r, &advice)) == SHMB_OK) return;
    fprintf(stderr, "%s\n", shmb_error_message(r));
    exit(1);
}

int main(int argc, char **argv) {
    char url[400];
    if (argc < 3) return 2;
    snprintf(url, sizeof url, "%s%s%cwait=%s", strstr(argv[1], "://") ? "" : "shm://", argv[1],
             strchr(argv[1], '?') ? '&' : '?', argv[2]);
    if (shmb_open(url, NULL, &r)) {
        fprintf(stderr, "%s\n", shmb_error_message(r));
        return 1;
    }
    any = argc > 4;
    if (argc > 3) { /* only now: a runner that may use one CPU only does not spin */
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(atoi(argv[3]), &cpus);
        sched_setaffinity(0, sizeof cpus, &cpus);
    }
    blocks(trip);
    shmb_close(r);
}
