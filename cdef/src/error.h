/* A status and its message: what was expected, what was found, what to do. */
#ifndef SHMB_ERROR_H
#define SHMB_ERROR_H

#include <stdbool.h>

#include "shmbridge.h"

struct error {
    shmb_status status;
    char message[512];
};

/* Sets both and returns the status. */
__attribute__((format(printf, 3, 4))) shmb_status fail(struct error *e, shmb_status status,
                                                       const char *format, ...);
/* The same for a failed system call: appends errno's text. */
shmb_status fail_errno(struct error *e, const char *what);
/* Is it for good: does every later question of that runner end so? */
bool status_lasts(shmb_status status);

#endif
