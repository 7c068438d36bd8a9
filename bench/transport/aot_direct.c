/* The function that shmbridge compile's generator writes, called directly. arguments: a library
 * with `call`, around that function. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"

enum { MOST = 64 };

static void (*call)(const void *const *inputs, void *output);
static const shmb_tensor *inputs;
static size_t count;

struct use {
    void *data[MOST], *output;
};

void direct_load(char **arguments, const shmb_tensor *of, size_t number) {
    void *library = dlopen(arguments[0], RTLD_NOW | RTLD_LOCAL),
         *address = library ? dlsym(library, "call") : NULL;
    if (!address || number > MOST) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(&call, &address, sizeof call);
    inputs = of;
    count = number;
}

void *direct_open(void) {
    struct use *u = calloc(1, sizeof *u);
    for (size_t i = 0; i < count; i++)
        u->data[i] = aligned_alloc(
            64, ((size_t)inputs[i].size * shmb_dtype_size(inputs[i].dtype) + 63) / 64 * 64);
    u->output = aligned_alloc(64, 64);
    return u;
}

void *direct_input(void *use, size_t index) { return ((struct use *)use)->data[index]; }

const void *direct_run(void *use) {
    struct use *u = use;
    call((const void *const *)u->data, u->output);
    return u->output;
}
