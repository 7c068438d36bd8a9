/* Recovery: a runner that, when its host is gone, connects and asks anew. */
#ifndef SHMB_RECOVERY_H
#define SHMB_RECOVERY_H

#include "runner/runner.h"

/* Opens what the URL's text says, waiting so many seconds, behind a runner that recovers as options
 * say. For want of a host (the status is returned, r->error says why) the runner is open all the
 * same, and looks for one when it is asked; other failures are r->broken. */
shmb_status shmb_recovery_open(shmb_runner *r, const char *text, const shmb_options *options,
                               double seconds);

#endif
