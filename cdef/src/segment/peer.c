#include "segment/peer.h"

#include <errno.h>
#include <fcntl.h>

static struct flock lock_of(int byte, short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool shmb_peer_take(int fd, int byte) {
    struct flock lock = lock_of(byte, F_WRLCK);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void shmb_peer_unlock(int fd, int byte) {
    struct flock lock = lock_of(byte, F_UNLCK);
    fcntl(fd, F_OFD_SETLK, &lock);
}

enum peer shmb_peer_look(int fd, int byte) {
    struct flock lock = lock_of(byte, F_WRLCK);
    /* closed by somebody, and with it our own lock */
    if (fcntl(fd, F_OFD_GETLK, &lock)) return errno == EBADF ? PEER_DEAD : PEER_UNKNOWN;
    return lock.l_type == F_UNLCK ? PEER_DEAD : PEER_ALIVE;
}

shmb_status shmb_peer_fail(struct error *e) {
    return shmb_fail_errno(e, "cannot check whether the host is alive by fcntl with F_OFD_GETLK");
}
