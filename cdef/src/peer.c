#include "peer.h"

#include <errno.h>
#include <fcntl.h>

static struct flock lock_of(int byte, short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool peer_lock(int fd, int byte) {
    struct flock lock = lock_of(byte, F_WRLCK);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
    if (errno == EACCES) errno = EAGAIN;
    return false;
}

void peer_unlock(int fd, int byte) {
    struct flock lock = lock_of(byte, F_UNLCK);
    fcntl(fd, F_OFD_SETLK, &lock);
}

bool peer_alive(int fd, int byte) {
    struct flock lock = lock_of(byte, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
