/* How a library asks, for peers_ask.c: a float32 array of so many bytes, the answer an int64. Both
 * functions exit if something fails. */
#ifndef PEERS_ASK_H
#define PEERS_ASK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void open_peer(const char *address, size_t bytes);
/* Writes every byte of the question. filler: of floats of ordinary size, another one each time. */
void ask_peer(size_t bytes, int filler);

#ifdef __cplusplus
}
#endif

#endif
