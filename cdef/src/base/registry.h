/* What is registered by name, for as long as the process lives: found without a lock, added by any
 * thread. */
#ifndef SHMB_REGISTRY_H
#define SHMB_REGISTRY_H

#include <pthread.h>

#include "shmbridge.h"

enum { MOST_REGISTERED = 256 };

struct registry {
    pthread_mutex_t adding;
    _Atomic int count;
    struct registered {
        const char *name;
        const void *what;
    } entries[MOST_REGISTERED];
};

/* NULL: nothing has that name. */
const void *shmb_registry_find(const struct registry *r, const char *name);
/* The name must live as long. Errors: IN_USE (something else has that name), NO_MEMORY (there is no
 * room). */
shmb_status shmb_registry_add(struct registry *r, const char *name, const void *what);

#endif
