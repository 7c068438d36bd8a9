/* LLVM's interactive channel as a protocol: for named pipes, and inside a compiler. */
#ifndef SHMB_LLVM_H
#define SHMB_LLVM_H

#include "runner/protocol.h"

/* fallback: what is advised when the runner has nothing to say, as text; "" for the decision's own.
 * NULL: no memory, or *e says what is wrong with fallback. */
extern const struct protocol shmb_llvm_protocol;
void *shmb_llvm_new(const char *fallback, struct error *e);
/* Only *left more decisions are asked, of all states that share it; the others are LLVM's own,
 * where it tells them, and count as not asked. `left` outlives the state, and may lie in memory
 * that processes share. */
void shmb_llvm_limit(void *state, _Atomic int64_t *left);

#endif
