/* N runners in one thread that ask at once, so that a host can answer them together.
 *     askers NAME CORE COUNT      NAME: a bridge's
 * Reads lines of "SHAPE NANOSECONDS", asks for that long, and prints the number of questions.
 * SHAPE: one (float32[500]), scalars (38 of float32), text (of another length each time),
 * large (10 MB). */
#include <sched.h>
#include <string.h>

#include "block.h"
#include "runner/nonblocking.h"

enum { MAX_RUNNERS = 256, SCALARS = 38, LARGE = 2500000 };

static shmb_runner *runners[MAX_RUNNERS];
static char names[SCALARS][16];

static void fill(shmb_runner *r, const char *shape, long turn) {
    static const char text[] =
        "a name, as a compiler's functions have it, of one length or another";
    if (!strcmp(shape, "scalars")) {
        for (int i = 0; i < SCALARS; i++) shmb_set_f32(r, names[i], (float)(turn + i));
    } else if (!strcmp(shape, "text")) {
        shmb_set_string(r, "text", text, 20 + turn % 40);
    } else {
        int64_t n = !strcmp(shape, "large") ? LARGE : 500;
        memset(shmb_feature_f32(r, "features", n), 0x3e + (turn & 1), (size_t)n * sizeof(float));
    }
}

static void check(shmb_runner *r, int status) {
    if (!status) return;
    fprintf(stderr, "%s\n", shmb_error_message(r));
    exit(1);
}

int main(int argc, char **argv) {
    char url[400], shape[16];
    long long length;
    if (argc < 4) return 2;
    int count = atoi(argv[3]);
    snprintf(url, sizeof url, "shm://%s?connect_timeout=10", argv[1]);
    for (int i = 0; i < SCALARS; i++) snprintf(names[i], sizeof names[i], "feature_%d", i);
    for (int i = 0; i < count && i < MAX_RUNNERS; i++)
        check(runners[i], (int)shmb_open(url, NULL, &runners[i]));
    cpu_set_t cpus; /* only now: a runner that may use one CPU only does not spin */
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[2]), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    printf("ready\n");
    fflush(stdout);
    while (scanf("%15s %lld", shape, &length) == 2) {
        long turns = 0;
        int64_t start = now_ns();
        do {
            for (int i = 0; i < count; i++) {
                fill(runners[i], shape, turns);
                check(runners[i], (int)shmb_runner_start(runners[i], SHMB_ANY));
            }
            for (int i = 0, status; i < count; i++) {
                while ((status = shmb_runner_continue(runners[i])) == -1) continue;
                check(runners[i], status);
            }
            turns++;
        } while (now_ns() - start < length);
        printf("%lld %lld\n", (long long)turns * count, (long long)(now_ns() - start));
        fflush(stdout);
    }
    for (int i = 0; i < count; i++) shmb_close(runners[i]);
    return 0;
}
