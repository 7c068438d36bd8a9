/* What a bridge is called, and where its files lie. */
#ifndef SHMB_NAMES_H
#define SHMB_NAMES_H

#include "shmbridge.h"

enum {
    NAME_BYTES = 100, /* of a bridge's name without its directory, at most */
    NAME_ROOM = 512   /* for the path of any of its files, and for why a name is refused */
};

/* The bridge of a name as people write it, into out[NAME_ROOM]: "NAME" lies in /dev/shm,
 * "/DIR/NAME" elsewhere. directory: where a bare name lies; NULL: in $SHMBRIDGE_DIR, or /dev/shm.
 * Errors, for which out is the reason: INVALID (a name is 1 to 100 letters, digits, '_', '.', '-',
 * not beginning with '.'), PERMISSION (others could put their files into the directory). */
shmb_status shmb_bridge_name(const char *text, const char *directory, char *out);
/* The path of such a bridge's file, into out[NAME_ROOM]. end: the session, in hexadecimal, while
 * the bridge is made; then NULL, or the number of a worker after the first, in decimal. */
void shmb_segment_path(const char *name, const char *end, char *out);

#endif
