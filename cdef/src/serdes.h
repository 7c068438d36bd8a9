/* SerDes: messages to bytes and back. A new one is a file that defines a shmb_serdes, and its line in serdes.c. */
#ifndef SHMB_SERDES_H
#define SHMB_SERDES_H

#include "sink.h"

extern const shmb_serdes serdes_flatbuffers, serdes_bitstream, serdes_json, serdes_bytes;

/* Built in or registered; NULL when there is none of that name. */
const shmb_serdes *serdes_find(const char *name);
/* The same for a URL's or a host's choice: on NULL *e lists those there are. */
const shmb_serdes *serdes_choose(const char *name, struct error *e);
/* "bitstream, json, …" into out[room], for messages. */
void serdes_names(char *out, size_t room);

/* Encodes into *out, behind what it holds. Errors: SHMB_NO_MEMORY and the SerDes' own. */
shmb_status serdes_encode(const shmb_serdes *s, shmb_side side, const shmb_tensor *fields,
                          int64_t count, shmb_dtype want, struct bytes *out, struct error *e);
/* Decodes into a message that was started, whose error (also the builder's) is *e; *want (may be NULL) gets what a request wants. */
shmb_status serdes_decode(const shmb_serdes *s, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype *want, struct builder *message, struct error *e);

#endif
