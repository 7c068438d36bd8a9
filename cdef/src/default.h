/* The default advice: what a runner goes on with where nobody advises. */
#ifndef SHMB_DEFAULT_H
#define SHMB_DEFAULT_H

#include "runner.h"

/* Does it mean that no host serves now: may opening or asking again help? NO_HOST, BUSY, HOST_GONE, CLOSED, CORRUPT. */
bool status_lacks_host(shmb_status status);
/* Reads the number that a runner takes by default; url, without its options, is what its line on stderr begins with. */
shmb_status default_open(struct default_advice **out, const char *text, const struct url *url,
                         struct error *e);
/* Takes r's default advice instead of the failure, r->error, and says so the first time. SHMB_OK, or what stays: the failure of
 * one who asked wrongly, or a number that the wanted dtype has not. */
shmb_status default_take(shmb_runner *r, shmb_status failure);

#endif
