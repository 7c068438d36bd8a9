/* A toy compiler: for each function of a C file it asks a model whether to inline it, and uses its
 * own heuristic if there is no model. A real compiler needs ask(), and the open and close in
 * main().
 *
 *     cc -O2 ask.c $(shmbridge config --cflags --libs) -o ask
 *     ./ask shm://demo file.c 5000         (URL, file, number of questions) */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shmbridge.h>

enum { FEATURES = 16, MAX_FUNCTIONS = 10000, SHOWN = 10 };

/* Feature i is how often patterns[i] occurs in the function's text. */
static const char *const patterns[FEATURES] = {
    "\n", ";", "if (", "for (", "while (", "switch (", "case ", "return",
    "(",  "[", "->",   "*",     "=",       "+",        "\"",    "{"};

struct function {
    char name[64];
    const char *text; /* zero-terminated */
};

static int64_t heuristic(float lines) { return lines < 5; }

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static float count(const char *text, const char *pattern) {
    float n = 0;
    while ((text = strstr(text, pattern))) text += strlen(pattern), n++;
    return n;
}

/* Should this function be inlined? *us is the round trip. False: the heuristic answered. */
static bool ask(shmb_runner *r, const struct function *f, int64_t *inline_it, double *us) {
    /* in shared memory: the model reads it there */
    float *features = shmb_feature_f32(r, "features", FEATURES);
    for (int i = 0; i < FEATURES; i++) features[i] = count(f->text, patterns[i]);
    float lines = features[0];
    shmb_set_string(r, "function", f->name, -1);

    double start = now_us();
    shmb_status status = shmb_evaluate_i64(r, inline_it);
    *us = now_us() - start;
    if (status != SHMB_OK) *inline_it = heuristic(lines);
    return status == SHMB_OK;
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *text = bytes < 0 ? NULL : calloc((size_t)bytes + 1, 1);
    if (text && (fseek(file, 0, SEEK_SET) || fread(text, 1, (size_t)bytes, file) != (size_t)bytes))
        *text = 0;
    if (file) fclose(file);
    return text;
}

/* Crude: a function begins with a letter that begins a line, has a "(" before its "{", and ends
 * with a "}" that begins a line. Cuts the text there. */
static int find_functions(char *text, struct function *out) {
    int n = 0;
    for (char *at = text, *next; at && *at && n < MAX_FUNCTIONS; at = next) {
        next = strchr(at, '\n');
        if (next) next++;
        if (!isalpha((unsigned char)*at)) continue;
        size_t paren = strcspn(at, "(;{"), body = paren + strcspn(at + paren, ";{"), name = paren;
        if (at[paren] != '(' || at[body] != '{') continue;
        while (name > 0 && (isalnum((unsigned char)at[name - 1]) || at[name - 1] == '_')) name--;
        snprintf(out[n].name, sizeof out[n].name, "%.*s", (int)(paren - name), at + name);
        out[n++].text = at;

        char *end = strchr(at + body, '\n');
        if (end && end[-1] != '}' && (end = strstr(end, "\n}"))) end = strchr(end + 1, '\n');
        if (end) *end = 0;
        next = end ? end + 1 : NULL;
    }
    return n;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, long n, double p) {
    return n ? sorted[(long)(p * (double)(n - 1))] : 0;
}

/* For people; the last line is JSON. */
static void report(long questions, long inlined, int functions, const char *path, double *us,
                   long answered) {
    qsort(us, (size_t)answered, sizeof *us, ascending);
    double p50 = percentile(us, answered, .5), p90 = percentile(us, answered, .9),
           p99 = percentile(us, answered, .99);
    printf(
        "%ld questions about %d functions of %s: %ld answered by the model, %ld by the heuristic; inline: %ld\n",
        questions, functions, path, answered, questions - answered, inlined);
    printf("round trip: p50 %.2f us, p90 %.2f us, p99 %.2f us\n", p50, p90, p99);
    printf("{\"questions\": %ld, \"functions\": %d, \"answered\": %ld, \"inlined\": %ld, ",
           questions, functions, answered, inlined);
    printf("\"p50_us\": %.3f, \"p90_us\": %.3f, \"p99_us\": %.3f}\n", p50, p90, p99);
}

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : NULL; /* NULL: $SHMBRIDGE_URL */
    const char *path = argc > 2 ? argv[2] : __FILE__;
    long questions = argc > 3 ? atol(argv[3]) : 5000, answered = 0, inlined = 0;
    static struct function functions[MAX_FUNCTIONS];
    char *text = read_file(path);
    int n = text ? find_functions(text, functions) : 0;
    double *us = questions > 0 ? calloc((size_t)questions, sizeof *us) : NULL;
    if (!n || !us) {
        fprintf(stderr, "usage: ask [URL [FILE [QUESTIONS]]]: found %d functions in %s\n", n, path);
        return 2;
    }

    shmb_runner *r;
    shmb_open(url, NULL, &r); /* on failure the first evaluate reports it */
    for (long i = 0; i < questions; i++) {
        const struct function *f = &functions[i % n];
        int64_t inline_it;
        bool advised = ask(r, f, &inline_it, &us[answered]);
        if (i < n && i < SHOWN)
            printf("  %-30.30s %-6s %s\n", f->name, inline_it ? "inline" : "call",
                   advised ? "" : "(heuristic)");
        answered += advised;
        inlined += inline_it != 0;
    }
    shmb_close(r);
    report(questions, inlined, n, path, us, answered);
    free(us);
    free(text);
    return 0;
}
