/* Shared libraries that are loaded when they are first wanted, so that the core depends on libc and
 * pthreads alone. */
#ifndef SHMB_LIBRARY_H
#define SHMB_LIBRARY_H

#include <pthread.h>

#include "base/error.h"

/* What to load, and where to look: at `file` alone if it is set, else at what the environment
 * variable names, else in Python's packages, else in the system's library path. */
struct library {
    const char *what;     /* "ONNX Runtime" */
    const char *file;     /* a path; NULL: not said */
    const char *variable; /* of the environment; NULL: none */
    /* below site-packages, as for glob: "onnxruntime/capi/libonnxruntime.so*"; NULL: none */
    const char *package;
    const char *const *names; /* in the library path, NULL at the end; NULL: none */
    /* opens one of them; *why: the reason for NULL. NULL: by dlopen */
    void *(*load)(const char *file, const char **why);
    const char *hint; /* what to do when it is not there */
};

/* The library's handle, for dlsym and dlclose. NULL: e says (SHMB_INVALID) what to do, why not, and
 * every place looked at. */
void *shmb_library_open(const struct library *l, struct error *e);
/* A function of it; NULL with e (SHMB_INVALID) when it has none of that name. Convert through
 * memcpy or a union. */
void *shmb_library_symbol(void *library, const char *file, const char *symbol, struct error *e);

/* Starts a thread of this library, which stays loaded for that, until the process ends. The
 * program's signals are for its own threads. False: there is none to be had. */
bool shmb_library_thread(pthread_t *thread, void *(*run)(void *));

#endif
