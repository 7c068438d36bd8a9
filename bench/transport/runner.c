/* The compiler's side in C: float32[BYTES / 4] in, one scalar out, repeatedly. It writes every
 * byte.
 *     runner NAME WAIT [CORE [any]]      NAME: a bridge's, or a URL, in which %zu becomes the
 *                                        number of floats; WAIT: as in a URL; any: advice of any
 *                                        dtype, otherwise int64 */
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "block.h"
#include "shmbridge.h"

static shmb_runner *r;
static bool any;
static char pattern[400];

static void connect_for(size_t floats) {
    char url[420];
    if (r) shmb_close(r);
    snprintf(url, sizeof url, pattern, floats);
    if (!shmb_open(url, NULL, &r)) return;
    fprintf(stderr, "%s\n", shmb_error_message(r));
    exit(1);
}

static void trip(size_t bytes) {
    static unsigned turn;
    static size_t last;
    int64_t advice;
    if (bytes != last && strstr(pattern, "%zu")) connect_for(bytes / sizeof(float));
    last = bytes;
    float *features = shmb_feature_f32(r, "features", (int64_t)(bytes / sizeof(float)));
    memset(features, 0x3e + (++turn & 1), bytes); /* floats of ordinary size */
    if ((any ? shmb_evaluate(r) : shmb_evaluate_i64(r, &advice)) == SHMB_OK) return;
    fprintf(stderr, "%s\n", shmb_error_message(r));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    snprintf(pattern, sizeof pattern, "%s%s%cwait=%s", strstr(argv[1], "://") ? "" : "shm://",
             argv[1], strchr(argv[1], '?') ? '&' : '?', argv[2]);
    if (!strstr(pattern, "%zu")) connect_for(0);
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
