/* What fork needs: the only state outside handles. In a child every inherited handle lets go of
 * what only its parent may hold: the parent's death still shows, and nothing is said twice. */
#ifndef SHMB_FORK_H
#define SHMB_FORK_H

#include <stdbool.h>

struct inherited {
    void (*in_child)(struct inherited *); /* may only make system calls; may be NULL */
    volatile bool forked;                 /* set in the child */
    struct inherited *next, **link;
};

/* Between these two no other thread forks: files are opened and watched in one go, or a child would
 * keep them. */
void shmb_fork_hold(void);
void shmb_fork_let_go(void);
/* Call with forks held. */
void shmb_fork_watch(struct inherited *handle, void (*in_child)(struct inherited *));
void shmb_fork_forget(struct inherited *handle);
/* For in_child: closes what is open. */
void shmb_fork_close(int *fd);

#endif
