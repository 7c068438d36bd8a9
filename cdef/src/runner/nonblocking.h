/* Opening and asking in slices of time, so that Python's signal handlers run between them. */
#ifndef SHMB_NONBLOCKING_H
#define SHMB_NONBLOCKING_H

#include <stdbool.h>

#include "shmbridge.h"

/* shmb_open that waits for at most `slice` seconds; *timeout gets how long, all in all, what came
 * of it may be tried again: the connect timeout that URL and options ask for, and the moment of a
 * host that is there. */
shmb_status shmb_open_slice(const char *url, const shmb_options *options, double slice,
                            double *timeout, shmb_runner **out);
/* What shmb_open returns where shmb_open_slice returned status and there will be no other try:
 * SHMB_OK when the default advice does. */
shmb_status shmb_open_end(const shmb_runner *r, shmb_status status);
/* Sends, or waits for a slot to do so. */
shmb_status shmb_runner_start(shmb_runner *r, shmb_dtype want);
enum { PENDING = -1 };
/* Waits a slice more: SHMB_OK when the advice is there, PENDING when it is not yet, else what
 * evaluate returns. */
int shmb_runner_continue(shmb_runner *r);
void shmb_runner_abandon(shmb_runner *r, shmb_status status);
/* shmb_send and shmb_receive in the same way. The first call returns what the whole one does, if
 * the second does not return PENDING; receive_start, too, may return PENDING. */
shmb_ticket shmb_send_start(shmb_runner *r, shmb_dtype want);
int shmb_send_continue(shmb_runner *r, shmb_ticket ticket);
int shmb_receive_start(shmb_runner *r, shmb_ticket ticket);
int shmb_receive_continue(shmb_runner *r);
/* Seconds that an evaluate may take: the caller's deadline, else the host's; infinity: no limit. */
double shmb_runner_deadline(const shmb_runner *r);
/* A feature of any kind with its own dims; *offsets gets a list's. */
void *shmb_runner_add(shmb_runner *r, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets);
/* The same with its values and offsets, which are copied. */
void shmb_runner_copy(shmb_runner *r, const shmb_tensor *t);
/* Which of tensors[count] has that name; -1: none. */
int64_t shmb_tensor_named(const shmb_tensor *tensors, int64_t count, const char *name);
/* Is there a runner kind of that scheme, built in or registered? */
bool shmb_scheme_known(const char *scheme);
/* Appends the schemes of the built-in kinds to a message's list. */
void shmb_kind_names(char *list, size_t room);

#endif
