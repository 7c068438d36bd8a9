/* Who is alive: open-file-description locks on bytes of the segment file, which the kernel drops at any kind of death. */
#ifndef SHMB_PEER_H
#define SHMB_PEER_H

#include <stdbool.h>

/* Takes the lock of a byte; false with errno EAGAIN when another open file holds it. */
bool peer_lock(int fd, int byte);
void peer_unlock(int fd, int byte);
/* Does another open file hold the lock of this byte? */
bool peer_alive(int fd, int byte);

#endif
