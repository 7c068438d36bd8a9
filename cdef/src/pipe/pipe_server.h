/* Compilers that speak a server protocol over named pipes are runners of a bridge. Each
 * conversation has a pair of open pipes, `from` the compiler (read end) and `to` it (open for
 * both), and its own runner of the bridge, which is closed with it. One compiler follows
 * another. */
#ifndef SHMB_PIPE_SERVER_H
#define SHMB_PIPE_SERVER_H

#include <stdint.h>

#include "host/host.h"
#include "runner/conversation_info.h"

typedef struct shmb_pipe_server shmb_pipe_server;
/* decisions: how many the compilers of LLVM ask about, all together; the rest is LLVM's own. -1:
 * any number. NULL: no memory or descriptor, which add reports; free, close and error accept it
 * too. */
shmb_pipe_server *shmb_pipe_server_new(int64_t decisions);
void shmb_pipe_server_free(shmb_pipe_server *server);
/* lets the pipes go, which compilers see; for any thread */
void shmb_pipe_server_close(shmb_pipe_server *server);
/* path: of the pair, PATH.in and PATH.out, which exist. Their lock is PATH.out's. protocol:
 * "frames" (detail: its SerDes; limit: bytes of the longest frame) or "llvm" (detail: the default
 * advice, "" for the built-in one). Takes the runner over, which may be NULL. Errors: INVALID,
 * IN_USE, SYSTEM, NO_MEMORY. */
shmb_status shmb_pipe_server_add(shmb_pipe_server *server, const char *path, const char *protocol,
                                 const char *detail, size_t limit, shmb_runner *runner);
/* Frames: answers failures of the conversation that was added last with that number instead, as
 * dtype `as` where the compiler wants none. Once for each. Errors: INVALID, INEXACT, NO_MEMORY. */
shmb_status shmb_pipe_server_set_default(shmb_pipe_server *server, const char *text, shmb_dtype as);
void shmb_pipe_server_info(shmb_pipe_server *server, int index, shmb_conversation_info *out);
const char *shmb_pipe_server_error(const shmb_pipe_server *server);
int shmb_pipe_server_talking(shmb_pipe_server *server); /* compilers in conversation */
/* Moves bytes, in one thread, for at most a slice. h: the host of the conversations' runners, if it
 * is in this process: then what the pipes bring becomes its requests, and this returns as
 * shmb_host_receive. NULL: waits for another process's advice. Returns -SHMB_TIMEOUT,
 * -SHMB_INTERRUPTED (`stop` was called), -SHMB_CLOSED, -SHMB_FORKED; without h also -SHMB_DROPPED:
 * a compiler waits for answers that cannot arrive, and must be ended; shmb_pipe_server_error has
 * the reason. */
int64_t shmb_pipe_server_run(shmb_pipe_server *server, shmb_host *h, int64_t timeout_ns);
/* Sends the replies that are there; for any thread. */
void shmb_pipe_server_flush(shmb_pipe_server *server);
/* Makes run return; signal-safe. */
void shmb_pipe_server_stop(shmb_pipe_server *server);

#endif
