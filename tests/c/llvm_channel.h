/* A compiler as LLVM's interactive channel knows it, by plain calls of the C library: it asks for
 * priorities. The host is bridge.h's: its advice is li_size + 1, the default is li_size. Link with
 * the preloaded library. */
#ifndef LLVM_CHANNEL_H
#define LLVM_CHANNEL_H

#include "bridge.h"

#define PREFIX "/no such place/ch" /* no file has that name: the library answers */

struct llvm_channel {
    int in, out;
};

static const char llvm_header[] =
    "{\"features\":[{\"name\":\"li_size\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"
    "{\"name\":\"weight\",\"type\":\"float\",\"port\":0,\"shape\":[1]}],"
    "\"advice\":{\"name\":\"priority\",\"type\":\"float\",\"port\":0,\"shape\":[1]}}\n{\"context\":"
    "\"main\"}\n";

/* The environment stands before a compiler's main, so this starts the program again with it. */
static inline void llvm_environment(char **argv) {
    if (getenv("SHMBRIDGE_LLVM_BASE")) return;
    setenv("SHMBRIDGE_LLVM_BASE", PREFIX, 1);
    setenv("SHMBRIDGE_LLVM_URL", "shm://nobody?connect_timeout=0", 1);
    execv("/proc/self/exe", argv);
    CHECK(!"to start again");
}

static inline void llvm_write(int fd, const void *bytes, size_t size) {
    CHECK(write(fd, bytes, size) == (ssize_t)size);
}

static inline void llvm_open_ends(struct llvm_channel *c) {
    c->in = open(PREFIX ".priority.in", O_RDONLY | O_CLOEXEC);
    CHECK(c->in >= 0);
    c->out = open(PREFIX ".priority.out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(c->out >= 0);
}

static inline void llvm_open(struct llvm_channel *c) {
    llvm_open_ends(c);
    llvm_write(c->out, llvm_header, sizeof llvm_header - 1);
}

static inline size_t llvm_observation(char *to, int64_t id, int64_t li_size) {
    size_t n = (size_t)sprintf(to, "{\"observation\":%lld}\n", (long long)id);
    memcpy(to + n, &li_size, 8);
    memset(to + n + 8, 0, 4);
    to[n + 12] = '\n';
    return n + 13;
}

static inline float llvm_ask(const struct llvm_channel *c, int64_t id, int64_t li_size) {
    char text[64];
    float advice = -1;
    llvm_write(c->out, text, llvm_observation(text, id, li_size));
    CHECK(read(c->in, &advice, sizeof advice) == sizeof advice);
    return advice;
}

static inline void llvm_close(const struct llvm_channel *c) {
    CHECK(close(c->in) == 0 && close(c->out) == 0);
}

/* A host of its own for this process, served by `serve` or as ever, that the next channels find;
 * options: "" or "&…". */
static inline pid_t llvm_host(char *name, void (*serve)(struct bridge *), const char *options) {
    char url[256];
    pid_t host = host_process("preload", name, serve);
    snprintf(url, sizeof url, "shm://%s?connect_timeout=10%s", name, options);
    setenv("SHMBRIDGE_LLVM_URL", url, 1);
    return host;
}

static inline void llvm_host_end(pid_t host, const char *name) {
    process_kill(host);
    CHECK(bridge_clean(name));
}

#endif
