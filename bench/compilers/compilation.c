/* A compiler without its work: computes for as long as a real one between two questions, and asks.
 *     compilation URL GAPS STEPS FIRST COUNT [TOGETHER]
 *     compilation calibrate
 * TOGETHER: how many questions it asks at once, after the work of all their gaps; the time of each
 * is that of all by their number.
 * GAPS: a file with the us between two questions, a number a line, or one number. Asks COUNT times
 * and begins with gap FIRST. A us is STEPS of work, so what the model's side takes from this CPU
 * adds to the time. Connects, asks once, prints a line and waits for one. Then writes int64: the ns
 * of all, the ns of its CPU, the sum of the advice, and the ns of each question, which include
 * writing the features. calibrate prints STEPS. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "compilation.h"

enum { WORDS = 1 << 17, MOST = 1 << 16, TRIES = 50, STEPS_OF_A_TRY = 200000, MOST_TOGETHER = 64 };

static uint64_t set[WORDS]; /* 1 MB, which a question finds in the caches */

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Each step reads and writes where the previous one led, and takes a branch that nobody predicts. */
static void work(uint64_t steps) {
    static uint64_t at = 1;
    for (; steps; steps--) {
        uint64_t *word = &set[at >> 47];
        at = (at + *word) * 6364136223846793005u + 1442695040888963407u;
        if (at & 1 << 20) *word += at;
        else *word ^= steps;
    }
}

static double calibrate(void) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t start = now_ns(CLOCK_MONOTONIC);
        work(STEPS_OF_A_TRY);
        int64_t took = now_ns(CLOCK_MONOTONIC) - start;
        if (took < best) best = took;
    }
    return STEPS_OF_A_TRY * 1000.0 / (double)best;
}

static size_t read_gaps(const char *source, double *gaps) {
    char *end;
    gaps[0] = strtod(source, &end);
    if (!*end) return 1;
    FILE *file = fopen(source, "r");
    size_t count = 0;
    while (file && count < MOST && fscanf(file, "%lf", &gaps[count]) == 1) count++;
    if (!count) {
        fprintf(stderr, "%s: expected a number of us, or a file of them\n", source);
        exit(1);
    }
    fclose(file);
    return count;
}

static int64_t questions(size_t first, size_t count) {
    static int64_t features[MOST_TOGETHER][FEATURES];
    for (size_t k = 0; k < count; k++)
        for (int i = 0; i < FEATURES; i++)
            features[k][i] = ((int64_t)(first + k) * 31 + i * 17) % 64 - 32;
    return count == 1 ? ask(features[0]) : ask_together(features, count);
}

int main(int argc, char **argv) {
    static double gaps[MOST];
    static int64_t head[3], ns[MOST];
    if (argc == 2) {
        printf("%.1f\n", calibrate());
        return 0;
    }
    if (argc < 6) return 2;
    size_t of = read_gaps(argv[2], gaps), first = strtoul(argv[4], NULL, 10);
    size_t count = strtoul(argv[5], NULL, 10);
    size_t together = argc > 6 ? strtoul(argv[6], NULL, 10) : 1;
    double steps = strtod(argv[3], NULL);
    if (count > MOST) count = MOST;
    if (together < 1 || together > MOST_TOGETHER) return 2;
    open_model(argv[1]);
    questions(0, 1);
    fprintf(stderr, "ready\n");
    getchar();
    int64_t start = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < count; i += together) {
        size_t n = count - i < together ? count - i : together;
        for (size_t k = i; k < i + n; k++) work((uint64_t)(gaps[(first + k) % of] * steps));
        int64_t asked = now_ns(CLOCK_MONOTONIC);
        head[2] += questions(i, n);
        int64_t each = (now_ns(CLOCK_MONOTONIC) - asked) / (int64_t)n;
        for (size_t k = i; k < i + n; k++) ns[k] = each;
    }
    head[0] = now_ns(CLOCK_MONOTONIC) - start;
    head[1] = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    close_model();
    fwrite(head, sizeof *head, 3, stdout);
    fwrite(ns, sizeof *ns, count, stdout);
}
