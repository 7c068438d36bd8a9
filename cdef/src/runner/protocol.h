/* A foreign protocol as a state machine over bytes: what a compiler sends becomes a runner's
 * request, the runner's advice the bytes that it gets back. Knows no files: conversation.c moves
 * bytes from and to named pipes, the preloaded library from and to the compiler's own calls of
 * write and read. One conversation at a time: from a compiler's first byte to its last. */
#ifndef SHMB_PROTOCOL_H
#define SHMB_PROTOCOL_H

#include "message/sink.h"
#include "runner/conversation_info.h"
#include "runner/runner.h"

/* What a conversation has counted: first in the state of each protocol. */
struct counted {
    shmb_conversation_info info; /* but for the failure */
    struct error first;          /* failure */
};
/* The same with the failure, whose text lives as long as the state. */
static inline shmb_conversation_info counted_in(const void *state) {
    const struct counted *c = state;
    shmb_conversation_info info = c->info;
    info.status = c->first.status;
    info.why = c->first.message;
    return info;
}

struct protocol {
    /* Takes bytes that came; *used (at most size) is how many, and may be fewer also when it
     * returns MORE. Fills r's request and returns ASK with *want when one is complete; MORE when it
     * needs more bytes; else the failure's status with *e: then the conversation cannot go on. r
     * may be NULL while no bridge is there: then nothing is filled. */
    int (*feed)(void *state, const uint8_t *bytes, size_t size, size_t *used, shmb_runner *r,
                shmb_dtype *want, struct error *e);
    /* After ASK: the answer's bytes, from r's advice if status is SHMB_OK, else from its error.
     * Errors: NO_MEMORY. */
    shmb_status (*answer)(void *state, shmb_runner *r, shmb_status status, struct bytes *out);
    /* The compiler has closed its end: forgets the conversation. */
    void (*end)(void *state);
    void (*free)(void *state);
    /* Where a compiler's bytes begin shows in them, and it must not see the end of its pipe. Else a
     * conversation that cannot go on gets a last answer and an end of file. */
    bool resumes;
};

/* GIVEN: as ASK, but there is nothing to ask, since this conversation's runner has failed for good
 * or too slowly before, enough was asked, or the question cannot be read: call answer at once, with
 * r NULL and any status. Only llvm.c returns it. */
enum { MORE = -1, ASK = -2, GIVEN = -3 };

#endif
