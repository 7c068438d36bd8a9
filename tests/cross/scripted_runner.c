/* A C runner that does what its standard input says, a line each, and prints what came of it; bytes
 * as in script.h.
 *   open URL (-: $SHMBRIDGE_URL) | wait SECONDS (open's timeout) | deadline SECONDS
 *   close | address NAME | write NAME BYTES | string NAME BYTES
 *   feature NAME DTYPE RANK DIMS... BYTES | bind NAME DTYPE RANK DIMS...
 *   strings NAME COUNT BYTES... | ragged NAME DTYPE ROWS LENGTHS... RANK DIMS... BYTES
 *   evaluate DTYPE | send DTYPE | receive N | i64 | i32 | f32 | f64 | spill PATH
 * send prints the N of its receive.
 * Each answer is one line: a status and the message, or 0 and then "| NAME DTYPE KIND RANK DIMS...
 * [OFFSETS...] BYTES" for each advice. */
#include <inttypes.h>
#include <stdbool.h>

#include "script.h"

enum { BOUND = 64, TICKETS = 64 };

static shmb_runner *runner;
static double connect_timeout;
static struct {
    char name[128];
    void *memory;
} bound[BOUND];
static int bound_count;
static shmb_ticket tickets[TICKETS];
static int ticket_count;

static void feature(void) {
    char *name = word();
    shmb_dtype dtype = (shmb_dtype)number();
    int64_t dims[16];
    int32_t rank = read_dims(dims);
    unsigned char *bytes;
    size_t n = unhex(word(), &bytes);
    void *to = shmb_feature(runner, name, dtype, rank, dims);
    if (n) memcpy(to, bytes, n);
    free(bytes);
}

static void bind(void) {
    char *name = word();
    shmb_dtype dtype = (shmb_dtype)number();
    int64_t dims[16];
    int32_t rank = read_dims(dims);
    strcpy(bound[bound_count].name, name);
    bound[bound_count++].memory = shmb_bind(runner, name, dtype, rank, dims);
}

static void *find(const char *name) {
    for (int i = 0; i < bound_count; i++)
        if (strcmp(bound[i].name, name) == 0) return bound[i].memory;
    exit(3);
}

static void write_bound(void) {
    void *to = find(word());
    unsigned char *bytes;
    size_t n = unhex(word(), &bytes);
    memcpy(to, bytes, n);
    free(bytes);
}

static void string(void) {
    char *name = word();
    unsigned char *bytes;
    size_t n = unhex(word(), &bytes);
    shmb_set_string(runner, name, (char *)bytes, (int64_t)n);
    free(bytes);
}

static void strings(void) {
    char *name = word();
    int64_t count = number(), *lengths = calloc((size_t)count + 1, sizeof *lengths);
    unsigned char **texts = calloc((size_t)count + 1, sizeof *texts);
    for (int64_t i = 0; i < count; i++) lengths[i] = (int64_t)unhex(word(), &texts[i]);
    shmb_set_strings(runner, name, count, (const char *const *)texts, lengths);
    for (int64_t i = 0; i < count; i++) free(texts[i]);
    free(texts);
    free(lengths);
}

static void ragged(void) {
    char *name = word();
    shmb_dtype dtype = (shmb_dtype)number();
    int64_t rows = number(), *lengths = calloc((size_t)rows + 1, sizeof *lengths), dims[16];
    for (int64_t i = 0; i < rows; i++) lengths[i] = number();
    int32_t rank = read_dims(dims); /* of the values; their first dim is the sum of the lengths */
    unsigned char *bytes;
    size_t n = unhex(word(), &bytes);
    void *to = shmb_feature_ragged(runner, name, dtype, rows, lengths, rank, dims + 1);
    if (n) memcpy(to, bytes, n);
    free(bytes);
    free(lengths);
}

static void advice(void) {
    shmb_tensor t;
    printf("0");
    for (int64_t i = 0; i < shmb_advice_count(runner); i++) {
        if (shmb_advice_at(runner, i, &t)) exit(4);
        bool list = t.kind == SHMB_STRINGS || t.kind == SHMB_RAGGED;
        printf(" | %s %d %d %d", t.name, (int)t.dtype, (int)t.kind, t.rank);
        for (int d = 0; d < t.rank + list; d++) printf(" %" PRId64, t.dims[d]);
        for (int64_t o = 0; list && o <= t.dims[0]; o++) printf(" %" PRId64, t.offsets[o]);
        printf(" ");
        hex(t.data, (size_t)t.size * shmb_dtype_size(t.dtype));
    }
}

static void result(shmb_status status) {
    if (status) printf("%d %s", (int)status, shmb_error_message(runner));
    else advice();
}

static void ask_f64(void) {
    double value = 0;
    shmb_status status = shmb_evaluate_number(runner, SHMB_FLOAT64, &value);
    if (status) result(status);
    else printf("0 %.17g", value);
}

static void ask_f32(void) {
    float value = 0;
    shmb_status status = shmb_evaluate_number(runner, SHMB_FLOAT32, &value);
    if (status) result(status);
    else printf("0 %.9g", (double)value);
}

static void ask_i64(void) {
    int64_t value = 0;
    shmb_status status = shmb_evaluate_i64(runner, &value);
    if (status) result(status);
    else printf("0 %" PRId64, value);
}

static void ask_i32(void) {
    int32_t value = 0;
    shmb_status status = shmb_evaluate_number(runner, SHMB_INT32, &value);
    if (status) result(status);
    else printf("0 %" PRId32, value);
}

static void send(shmb_dtype want) {
    if (ticket_count == TICKETS) exit(8);
    tickets[ticket_count] = shmb_send(runner, want);
    printf("0 %d", ticket_count++);
}

static void close_runner(void) {
    interruptible = NULL;
    shmb_close(runner);
    runner = NULL;
}

static void open_runner(void) {
    shmb_options options = {.size = sizeof options, .connect_timeout = connect_timeout};
    const char *url = word();
    close_runner();
    bound_count = ticket_count = 0;
    shmb_status status = shmb_open(*url == '-' ? NULL : url, &options, &runner);
    interruptible = runner;
    printf("%d %s", (int)status, shmb_error_message(runner));
}

static void obey(const char *verb) {
    if (strcmp(verb, "open") == 0) open_runner();
    else if (strcmp(verb, "feature") == 0) feature();
    else if (strcmp(verb, "bind") == 0) bind();
    else if (strcmp(verb, "write") == 0) write_bound();
    else if (strcmp(verb, "string") == 0) string();
    else if (strcmp(verb, "strings") == 0) strings();
    else if (strcmp(verb, "ragged") == 0) ragged();
    else if (strcmp(verb, "wait") == 0) connect_timeout = strtod(word(), NULL);
    else if (strcmp(verb, "deadline") == 0) shmb_set_deadline(runner, strtod(word(), NULL));
    else if (strcmp(verb, "address") == 0) printf("%" PRIuPTR, (uintptr_t)find(word()));
    else if (strcmp(verb, "evaluate") == 0) result(shmb_evaluate_as(runner, (shmb_dtype)number()));
    else if (strcmp(verb, "send") == 0) send((shmb_dtype)number());
    else if (strcmp(verb, "receive") == 0) result(shmb_receive(runner, tickets[number()]));
    else if (strcmp(verb, "f64") == 0) ask_f64();
    else if (strcmp(verb, "f32") == 0) ask_f32();
    else if (strcmp(verb, "i64") == 0) ask_i64();
    else if (strcmp(verb, "i32") == 0) ask_i32();
    else if (strcmp(verb, "close") == 0) close_runner();
    else exit(5);
}

int main(void) {
    read_script(obey);
    shmb_close(runner);
    return 0;
}
