/* SerDes: messages to bytes and back. A new one is a file that defines a shmb_serdes, and its line
 * in serdes.c. */
#ifndef SHMB_SERDES_H
#define SHMB_SERDES_H

#include "message/sink.h"

extern const shmb_serdes shmb_serdes_flatbuffers, shmb_serdes_bitstream, shmb_serdes_json;

/* Built in or registered; NULL when there is none of that name. */
const shmb_serdes *shmb_serdes_find(const char *name);
/* The same for a URL's or a host's choice: on NULL *e lists those there are. */
const shmb_serdes *shmb_serdes_choose(const char *name, struct error *e);

/* Encodes into *out, behind what it holds. typed: of a request, whose sender understands
 * frame_typed; a SerDes whose advice has dtypes ignores it. Errors: SHMB_NO_MEMORY and the SerDes'
 * own. */
shmb_status shmb_serdes_encode(const shmb_serdes *s, shmb_side side, const shmb_tensor *fields,
                               int64_t count, shmb_dtype want, bool typed, struct bytes *out,
                               struct error *e);
/* Decodes into a message that was started, whose error (also the builder's) is *e; *want and *typed
 * get what a request says (may be NULL). */
shmb_status shmb_serdes_decode(const shmb_serdes *s, shmb_side side, const void *bytes, size_t size,
                               shmb_dtype *want, bool *typed, struct builder *message,
                               struct error *e);

#endif
