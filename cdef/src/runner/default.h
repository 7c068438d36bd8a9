/* The default advice: what a runner goes on with where nobody advises. */
#ifndef SHMB_DEFAULT_H
#define SHMB_DEFAULT_H

#include "runner/runner.h"

/* Does it mean that no host serves now: may opening or asking again help? NO_HOST, BUSY, HOST_GONE,
 * CLOSED, CORRUPT. */
bool shmb_status_lacks_host(shmb_status status);
/* Reads the number that a runner takes by default. */
shmb_status shmb_default_open(struct default_advice **out, const char *text, struct error *e);
/* The number as that dtype, until the next call; NULL where it has no exact counterpart in it. */
const shmb_tensor *shmb_default_as(struct default_advice *d, shmb_dtype want);
/* Reads r's advice as dtype into out (8 bytes) where that is the default; false where it is not, or
 * dtype cannot hold it. */
bool shmb_default_read_as(shmb_runner *r, shmb_dtype dtype, void *out);
/* Writes a line, "where: why: then", to log, or to stderr where that is NULL. */
void shmb_say(const char *where, const char *why, const char *then,
              void (*log)(void *, const char *), void *context);
/* The same: why the default advice is taken. */
void shmb_default_say(const struct default_advice *d, const char *where, const char *why,
                      void (*log)(void *, const char *), void *context);
/* A log for those who report failures themselves. */
void shmb_say_nothing(void *context, const char *line);
/* Takes r's default advice instead of the failure, r->error, and says so the first time. SHMB_OK,
 * or what stays: the failure of a wrong question, or a number that the wanted dtype cannot
 * represent. */
shmb_status shmb_default_take(shmb_runner *r, shmb_status failure);

#endif
