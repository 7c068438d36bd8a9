/* What a bridge and its files below /dev/shm are called. The Python extension reads these
 * declarations too. */
#ifndef SHMB_NAMES_H
#define SHMB_NAMES_H

#include <stdbool.h>

/* What a bridge's files below /dev/shm are called, into out[160]. end: the session, in hexadecimal,
 * while the bridge is made; then NULL, or the number of a worker after the first, in decimal. */
void shmb_segment_name(const char *name, const char *end, char *out);
/* 1 to 100 letters, digits, '_', '.', '-', not beginning with '.'. */
bool shmb_name_valid(const char *name);

#endif
