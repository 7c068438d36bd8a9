/* What fork needs: the only state outside handles. In a child every inherited handle's lock fd is closed, so that the
 * parent's death still shows, and its mapping is read-only, so that kept arrays can be read and nothing be said twice. */
#ifndef SHMB_FORK_H
#define SHMB_FORK_H

#include <stdbool.h>
#include <stddef.h>

struct inherited {
    int *fd;
    void **base;
    size_t *size;
    volatile bool forked; /* set in the child */
    struct inherited *next, **link;
};

/* Between these two no other thread forks: a segment is opened and watched in one go, or a child would keep its lock. */
void fork_hold(void);
void fork_let_go(void);
/* Call with forks held. */
void fork_watch(struct inherited *handle, int *fd, void **base, size_t *size);
void fork_forget(struct inherited *handle);

#endif
