#include "base/registry.h"

#include <string.h>

#include "base/order.h"

const void *shmb_registry_find(const struct registry *r, const char *name) {
    for (int i = 0, n = load_acquire(&r->count); i < n; i++)
        if (strcmp(r->entries[i].name, name) == 0) return r->entries[i].what;
    return NULL;
}

shmb_status shmb_registry_add(struct registry *r, const char *name, const void *what) {
    shmb_status status = SHMB_OK;
    pthread_mutex_lock(&r->adding);
    const void *same = shmb_registry_find(r, name);
    int n = load_relaxed(&r->count);
    if (same) status = same == what ? SHMB_OK : SHMB_IN_USE;
    else if (n == MOST_REGISTERED) status = SHMB_NO_MEMORY;
    else {
        r->entries[n] = (struct registered){name, what};
        atomic_store(&r->count, n + 1);
    }
    pthread_mutex_unlock(&r->adding);
    return status;
}
