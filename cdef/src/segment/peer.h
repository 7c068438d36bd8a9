/* Who is alive: open-file-description locks on bytes of the segment file, which the kernel drops at
 * any kind of death. */
#ifndef SHMB_PEER_H
#define SHMB_PEER_H

#include <stdbool.h>

#include "base/error.h"

enum peer {
    PEER_DEAD,
    PEER_ALIVE,
    /* the kernel does not say, e.g. since a sandbox forbids to ask; errno tells. Nobody is taken
     * for dead without proof */
    PEER_UNKNOWN
};

/* Takes the lock of a byte; false with errno EAGAIN when another open file holds it, else when it
 * cannot be had at all. */
bool shmb_peer_take(int fd, int byte);
void shmb_peer_unlock(int fd, int byte);
/* Does another open file hold the lock of this byte? */
enum peer shmb_peer_look(int fd, int byte);
/* The error of what errno says about shmb_peer_take or shmb_peer_look. */
shmb_status shmb_peer_fail(struct error *e);

#endif
