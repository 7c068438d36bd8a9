/* What scripted runners in C and C++ read and print. Bytes are hexadecimal, "-" for none, or @PATH:
 * that file's. What they print goes to the file that `spill PATH` named where it is longer than
 * SPILL bytes. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shmbridge.h"

enum { SPILL = 1 << 16 };

static shmb_runner *volatile interruptible;
static char spill[4096];

static inline char *word(void) {
    char *w = strtok(NULL, " ");
    if (!w) exit(2);
    return w;
}

static inline int64_t number(void) { return strtoll(word(), NULL, 10); }

static inline size_t from_file(const char *path, unsigned char **out) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(6);
    size_t n = (size_t)ftell(file);
    rewind(file);
    *out = (unsigned char *)malloc(n + 1);
    if (fread(*out, 1, n, file) != n) exit(6);
    fclose(file);
    return n;
}

static inline size_t unhex(const char *hex, unsigned char **out) {
    if (*hex == '@') return from_file(hex + 1, out);
    size_t n = *hex == '-' ? 0 : strlen(hex) / 2;
    *out = (unsigned char *)malloc(n + 1);
    for (size_t i = 0; i < n; i++) sscanf(hex + 2 * i, "%2hhx", &(*out)[i]);
    return n;
}

static inline void to_file(const void *bytes, size_t n) {
    FILE *file = fopen(spill, "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file)) exit(6);
    printf("@%s", spill);
}

static inline void hex(const void *bytes, size_t n) {
    if (!n) printf("-");
    else if (n > SPILL && *spill) to_file(bytes, n);
    else
        for (size_t i = 0; i < n; i++) printf("%02x", ((const unsigned char *)bytes)[i]);
}

static inline int32_t read_dims(int64_t *dims) {
    int32_t rank = (int32_t)number();
    for (int i = 0; i < rank; i++) dims[i] = number();
    return rank;
}

static inline void on_interrupt(int signal) {
    (void)signal;
    shmb_interrupt(interruptible);
}

/* Obeys standard input, a line each. A SIGINT interrupts the runner that `interruptible` is. */
static inline void read_script(void (*obey)(const char *verb)) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    while ((n = getline(&line, &room, stdin)) > 0) {
        line[n - 1] = 0;
        const char *verb = strtok(line, " ");
        if (strcmp(verb, "spill") == 0) strcpy(spill, word());
        else obey(verb);
        printf("\n");
        fflush(stdout);
    }
    free(line);
}

#endif
