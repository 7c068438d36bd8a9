/* Episodes whose questions are asked by a callback: Python's handlers of signals run there. */
#ifndef SHMB_DRIVE_H
#define SHMB_DRIVE_H

#include "shmbridge/environment.h"

/* shmb_drive, with `ask` in the place of shmb_evaluate; context: the environment's. */
shmb_status shmb_drive_by(const shmb_environment *environment, shmb_agent *const *agents,
                          int64_t count, int64_t max_steps,
                          shmb_status (*ask)(void *context, shmb_runner *r), const char **why);

#endif
