/* Times the same question through shared memory and through a pair of named pipes, in alternating
 * blocks.
 *
 *     race URL QUESTIONS-PIPE ANSWERS-PIPE BLOCKS QUESTIONS <question >times
 *
 * stdin: the question's bytes. stdout: every round trip in ns, as int64[BLOCKS][2][QUESTIONS],
 * shared memory first. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shmbridge.h>

enum { FEATURES = 16 };

static float question[FEATURES];

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool ask_memory(shmb_runner *r, int64_t *advice) {
    memcpy(shmb_feature_f32(r, "features", FEATURES), question, sizeof question);
    return shmb_evaluate_i64(r, advice) == SHMB_OK;
}

static bool ask_pipe(int to, int from, int64_t *advice) {
    return write(to, question, sizeof question) == sizeof question &&
           read(from, advice, sizeof *advice) == sizeof *advice;
}

int main(int argc, char **argv) {
    if (argc != 6 || fread(question, sizeof question, 1, stdin) != 1) return 2;
    long blocks = atol(argv[4]), n = atol(argv[5]);
    int64_t *ns = calloc((size_t)n, sizeof *ns), advice[2] = {0};
    int to = open(argv[2], O_WRONLY), from = open(argv[3], O_RDONLY);
    shmb_runner *r;
    shmb_open(argv[1], NULL, &r);
    for (long block = 0; ns && block < 2 * blocks; block++) {
        bool by_pipe = block % 2;
        for (long i = 0; i < n; i++) {
            int64_t start = now_ns();
            bool asked = by_pipe ? ask_pipe(to, from, &advice[1]) : ask_memory(r, &advice[0]);
            ns[i] = now_ns() - start;
            if (!asked) {
                fprintf(stderr, "%s\n", by_pipe ? "the pipe's model ended" : shmb_error_message(r));
                return 1;
            }
        }
        fwrite(ns, sizeof *ns, (size_t)n, stdout);
    }
    shmb_close(r);
    free(ns);
    if (advice[0] != advice[1]) fprintf(stderr, "the two models disagree\n");
    return advice[0] != advice[1];
}
