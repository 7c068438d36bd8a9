/* compilation.c's ways through the C API, and through LLVM's interactive channel: "llvm:BASE". With
 * "together:URL" features are not bound, so that several questions can be in flight. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compilation.h"
#include "shmbridge.h"

static shmb_runner *r;
static int64_t *bound[FEATURES]; /* as LLVM's own runner has them */
static int from_host, to_host;

static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static int open_end(const char *base, const char *end, int flags) {
    char path[400];
    snprintf(path, sizeof path, "%s%s", base, end);
    int fd = open(path, flags);
    if (fd < 0) fail(path);
    return fd;
}

static void send_all(const char *bytes, size_t size) {
    if (write(to_host, bytes, size) != (ssize_t)size) fail("the host is gone");
}

static void open_channel(const char *base) {
    static const char spec[] = "{\"name\":\"%s\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]}";
    char text[8192];
    from_host = open_end(base, ".in", O_RDONLY);
    to_host = open_end(base, ".out", O_WRONLY);
    int n = sprintf(text, "{\"features\":[");
    for (int i = 0; i < FEATURES; i++) {
        n += sprintf(text + n, spec, feature_names[i]);
        text[n++] = i < FEATURES - 1 ? ',' : ']';
    }
    n += sprintf(text + n, ",\"advice\":");
    n += sprintf(text + n, spec, "inlining_decision");
    n += sprintf(text + n, "}\n{\"context\":\"\"}\n");
    send_all(text, (size_t)n);
}

static int64_t ask_channel(const int64_t *features) {
    static int number;
    const size_t size = FEATURES * sizeof *features;
    char text[512];
    int64_t advice;
    size_t n = (size_t)sprintf(text, "{\"observation\":%d}\n", number++);
    memcpy(text + n, features, size);
    text[n + size] = '\n';
    send_all(text, n + size + 1);
    if (read(from_host, &advice, sizeof advice) != sizeof advice) fail("the host is gone");
    return advice;
}

void open_model(const char *url) {
    if (strncmp(url, "llvm:", 5) == 0) {
        open_channel(url + 5);
        return;
    }
    bool together = strncmp(url, "together:", 9) == 0;
    if (shmb_open(together ? url + 9 : url, NULL, &r)) fail(shmb_error_message(r));
    for (int i = 0; i < FEATURES && !together; i++)
        bound[i] = shmb_bind(r, feature_names[i], SHMB_INT64, 1, &(int64_t){1});
}

int64_t ask(const int64_t *features) {
    int64_t advice = 0;
    if (!r) return ask_channel(features);
    if (!bound[0]) return ask_together((int64_t (*)[FEATURES])features, 1);
    for (int i = 0; i < FEATURES; i++) *bound[i] = features[i];
    if (shmb_evaluate_i64(r, &advice)) fail(shmb_error_message(r));
    return advice;
}

int64_t ask_together(int64_t (*features)[FEATURES], size_t count) {
    shmb_ticket tickets[64];
    int64_t sum = 0, advice;
    for (size_t k = 0; k < count; k++) {
        for (int i = 0; i < FEATURES; i++)
            shmb_set(r, feature_names[i], SHMB_INT64, 1, &(int64_t){1}, &features[k][i]);
        tickets[k] = shmb_send(r, SHMB_INT64);
    }
    for (size_t k = 0; k < count; k++) {
        if (shmb_receive_i64(r, tickets[k], &advice)) fail(shmb_error_message(r));
        sum += advice;
    }
    return sum;
}

void close_model(void) {
    if (r) shmb_close(r);
}
