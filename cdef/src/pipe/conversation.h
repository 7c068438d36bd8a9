/* What a compiler says through a pair of named pipes, and the compilers behind it, one after
 * another; and all such pairs of a host. */
#ifndef SHMB_CONVERSATION_H
#define SHMB_CONVERSATION_H

#include <pthread.h>

#include "pipe/pipe_server.h"
#include "pipe/stream.h"
#include "process/fork.h"
#include "runner/protocol.h"

enum phase {
    QUIET,   /* no compiler is known to be there */
    TALKING, /* one is */
    ASKING,  /* its question has no answer yet */
    DEAF     /* its conversation cannot go on: what it still writes is dropped */
};

struct conversation {
    struct shmb_pipe_server *server;
    const struct protocol *protocol;
    void *state;
    shmb_runner *runner; /* may be NULL: no bridge */
    struct stream stream;
    int locked;  /* reads PATH.out too: holds the lock and the pipe */
    int in_path; /* PATH.in, without being an end of it */
    int watch;   /* of PATH.out, among the server's events */
    enum phase phase;
    bool dirty;   /* the compiler wrote something that was perhaps not read */
    size_t fresh; /* the last bytes of stream.in: perhaps the next compiler's already */
    char *path;   /* for messages */
    struct inherited inherited;
};

struct shmb_pipe_server {
    pthread_mutex_t mutex;
    struct conversation **conversations;
    struct pollfd *ends; /* the bell, and two for each line */
    int count;
    int bell;   /* an eventfd */
    int events; /* an inotify; -1: does without */
    bool polling, closed;
    _Atomic int64_t left; /* decisions that are still asked */
    _Atomic int stopped;
    struct error error;
};

/* Opens the pair at path, which exists, and the protocol's state. Errors: INVALID, IN_USE, SYSTEM,
 * NO_MEMORY, in c->server->error. */
shmb_status shmb_conversation_open(struct conversation *c, const char *path, const char *protocol,
                                   const char *detail, size_t limit);
void shmb_conversation_close(struct conversation *c); /* lets the pipes go */
void shmb_conversation_free(struct conversation *c);
/* All that can be done now: reads, asks, collects the answer and writes it. */
void shmb_conversation_turn(struct conversation *c);
/* The question's answer, if it is there, as far as the pipe takes it. */
void shmb_conversation_flush(struct conversation *c);
void shmb_conversation_answer(struct conversation *c, shmb_runner *r, shmb_status status);
/* Ends the conversations whose compilers have closed their end: one inotify reports for all. The
 * end of the pipe does not tell, since the next compiler may have opened it already. */
void shmb_conversations_note(shmb_pipe_server *server);
/* Nobody writes to the pipe any more, and all was read, unless the compiler wrote before it had the
 * whole answer. */
void shmb_conversation_hung_up(struct conversation *c);

#endif
