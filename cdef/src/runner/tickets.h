/* Questions that were sent and not yet received: shmb_send and shmb_receive. A kind that has one
 * question at a time answers it while it is sent. */
#ifndef SHMB_TICKETS_H
#define SHMB_TICKETS_H

#include "runner/runner.h"

/* An answer came, or status and why. number: its question's, also of one that was received or given
 * up meanwhile. The kind's advice is copied. */
void shmb_ticket_answer(shmb_runner *r, uint64_t number, shmb_status status, const char *why);

#endif
