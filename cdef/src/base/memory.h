/* Room for a message in this process's own memory: reserved once, taken page by page as it is used,
 * so it never moves. */
#ifndef SHMB_MEMORY_H
#define SHMB_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory {
    uint8_t *base;      /* page-aligned; NULL: none */
    size_t room, taken; /* taken: the most that a message used since pages were given back */
};

/* Reserves as much as the process may have, at most 4 GiB and at least 1 MiB; false when there is
 * not even that. */
bool shmb_memory_reserve(struct memory *m);
/* Before a new message, the last of which used so many bytes: gives pages back that a larger one
 * before it took. */
void shmb_memory_trim(struct memory *m, size_t used);
void shmb_memory_release(struct memory *m);

#endif
