#include "process/fork.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct inherited *handles;

static void before(void) { pthread_mutex_lock(&mutex); }
static void in_parent(void) { pthread_mutex_unlock(&mutex); }

static void fork_in_child(void) {
    for (struct inherited *h = handles; h; h = h->next) {
        h->forked = true;
        if (h->in_child) h->in_child(h);
    }
    pthread_mutex_unlock(&mutex);
}

static void fork_start(void) { pthread_atfork(before, in_parent, fork_in_child); }

void shmb_fork_hold(void) {
    pthread_once(&once, fork_start);
    pthread_mutex_lock(&mutex);
}

void shmb_fork_let_go(void) { pthread_mutex_unlock(&mutex); }

void shmb_fork_watch(struct inherited *handle, void (*in_the_child)(struct inherited *)) {
    *handle = (struct inherited){.in_child = in_the_child, .next = handles, .link = &handles};
    if (handles) handles->link = &handle->next;
    handles = handle;
}

void shmb_fork_forget(struct inherited *handle) {
    pthread_mutex_lock(&mutex); /* a neighbour that leaves writes to this link */
    if (handle->link) *handle->link = handle->next;
    if (handle->link && handle->next) handle->next->link = handle->link;
    handle->link = NULL;
    pthread_mutex_unlock(&mutex);
}

void shmb_fork_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
