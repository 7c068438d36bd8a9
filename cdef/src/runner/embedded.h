/* What this library and the Python in its process, both of one version, give each other. */
#ifndef SHMB_EMBEDDED_H
#define SHMB_EMBEDDED_H

#include "shmbridge/plugin.h"

struct shmb_embedding {
    /* The library's: registers what Python has, under a name that is copied; context goes to each
     * call. Errors: as shmb_register_runner. */
    shmb_status (*add_runner)(const char *scheme, void *context);
    shmb_status (*add_serdes)(const char *name, void *context);
    /* Python's: has what a URL names registered. text[room]: the URL, then the one to open, or why
     * it fails. */
    shmb_status (*resolve)(struct shmb_embedding *, char *text, size_t room);
    shmb_runner_kind runner; /* its functions */
    shmb_serdes serdes;
    char why[512]; /* Python runs, but resolve is not set */
};

#endif
