/* The host's side of a bridge, for Python's Host, pipe/pipe_server.c and the C tests. */
#ifndef SHMB_HOST_H
#define SHMB_HOST_H

#include <stdbool.h>

#include "shmbridge.h"

/* Bytes of every slot, by direction; slots a power of two, 2 to 32; channels 1 to 256. */
typedef struct shmb_plan {
    uint32_t channels, slots;
    uint64_t header_bytes, request_bytes, advice_bytes;
} shmb_plan;
/* Rounds *plan up to what can be; returns the segment's bytes, or 0 when it makes no sense. */
uint64_t shmb_plan_bytes(shmb_plan *plan);
/* Gives fd that size, and memory to all but the slots from the third on of each direction: they get
 * theirs at first use. Returns an errno; *needed: the bytes of memory that this takes. fd < 0: only
 * counts them. */
int shmb_plan_reserve(const shmb_plan *plan, int fd, uint64_t *needed);

/* A host on fd: an empty file of shmb_plan_bytes bytes that nobody else knows yet, locked at byte
 * 0. Takes fd over unless it fails; *out is set on failure too, for its error,
 * and must be freed. session: 16 bytes. One thread receives at a time; any thread may reply. */
typedef struct shmb_host shmb_host;
shmb_status shmb_host_create(int fd, const shmb_plan *plan, const uint8_t *session, shmb_wait wait,
                             shmb_host **out);
/* Seconds that an answer may take, for runners that connect from now on and have no deadline of
 * their own; infinity: as long as the host lives. */
void shmb_host_set_deadline(shmb_host *h, double seconds);
/* How many hosts share the name, of which runners choose one. */
void shmb_host_set_workers(shmb_host *h, uint32_t workers);
/* Says closed, wakes every runner, drops the lock. The mapping stays until shmb_host_free. */
void shmb_host_close(shmb_host *h);
void shmb_host_free(shmb_host *h);
/* of the last failed call with that key; key < 0: create */
const char *shmb_host_error(const shmb_host *h, int64_t key);
/* the mapping, read-only in a forked child */
void *shmb_host_memory(const shmb_host *h, uint64_t *size);
bool shmb_host_forked(const shmb_host *h);
/* the loop has ended: until the next receive, runners that wait in vain say so */
void shmb_host_rest(shmb_host *h);
/* makes a waiting receive return SHMB_INTERRUPTED; signal-safe */
void shmb_host_wake(shmb_host *h);

/* A request's key: version << 16 | copy << 15 | channel << 5 | slot. */
enum {
    SHMB_KEY_SLOT_BITS = 5,
    SHMB_KEY_PLACE = 0x7fff, /* channel and slot, in the order of addresses */
    /* what is read must be copied before the reply: the runner may write there after it */
    SHMB_KEY_COPY = 0x8000
};

/* Waits up to timeout_ns (and at most a slice, 100 ms) for a request. Returns its key, or
 * -shmb_status: -SHMB_TIMEOUT when none came, -SHMB_INTERRUPTED, -SHMB_CLOSED, -SHMB_FORKED. Equal
 * keys mean equal slots, names, dtypes and dims, but for the lengths of strings; with equal
 * `placed` also equal addresses. */
int64_t shmb_host_receive(shmb_host *h, int64_t timeout_ns);
/* The same without sleeping: looks for 100 microseconds or so where spinning pays, for one or two
 * in a crowd, else once. */
int64_t shmb_host_poll(shmb_host *h);
/* The same with one look. */
int64_t shmb_host_take(shmb_host *h);
int shmb_host_attached(const shmb_host *h); /* runners with a channel */
/* Runners with a request that has no reply yet, and none that is still to be received. */
int shmb_host_waiting(const shmb_host *h);

/* The number of a channel's claim, which tells its runner from the one before; -1: nobody has it,
 * or whoever did has died (known after a receive that waited). */
int64_t shmb_host_claim(shmb_host *h, int64_t channel);

/* Which request or claim was not taken at the last look, and how often the host had received. */
typedef struct shmb_delay {
    uint64_t claim, position;
    uint32_t received;
} shmb_delay;
/* Does the host keep a runner of that label waiting? Yes, while it has a request and has not
 * answered. A request or a claim that it has not taken counts too, but not if it was there at the
 * last look and the host has received since: a runner can pretend to have sent one. *last: zeros at
 * first. For any thread. */
bool shmb_host_delays(shmb_host *h, const char *label, shmb_delay *last);

/* The request of a key: valid until its reply. NULL when that was sent or the runner has gone. */
typedef struct shmb_message {
    int64_t count;
    const shmb_tensor *tensors;
    const uint8_t *body;
    size_t body_bytes;
    shmb_dtype want;
    uint32_t placed; /* another number: tensors and lists lie elsewhere */
} shmb_message;
const shmb_message *shmb_host_message(shmb_host *h, int64_t key);
/* Copies offsets[rows + 1] of the list tensors[index]; false when stale. For any thread. */
bool shmb_host_offsets(shmb_host *h, int64_t key, int64_t index, int64_t *out);

/* Copies the bytes of the request's tensors[index] to out[room], also after the reply. Returns how
 * many they are, of which none is copied where there is no room for all; -1: its slot holds another
 * request. For any thread. */
int64_t shmb_host_values(shmb_host *h, int64_t key, int64_t index, void *out, int64_t room);

/* Who asked. number: no other runner of this host has it. pid and label, with room for 256 bytes,
 * are what the runner says of itself. False when another has the channel by now. */
bool shmb_host_runner(shmb_host *h, int64_t key, uint64_t *number, uint32_t *pid, char *label);

/* Views of the slot live on, so it does not go back until shmb_host_release; the runner is not
 * woken, for who answers several: wake each after the last reply, or it notices after 100 ms. */
enum { SHMB_KEEP = 1, SHMB_UNWOKEN = 2 };
/* Replies to a key with copies of fields of any kind; one tensor alone is converted to what the
 * runner wants. how: of the bits above. Errors: RUNNER_GONE (key is stale), INEXACT, INVALID (no
 * message), TOO_LARGE (the runner gets these three, too), CORRUPT, FORKED, CLOSED. */
shmb_status shmb_host_reply(shmb_host *h, int64_t key, int how, const shmb_tensor *fields,
                            int64_t count);
void shmb_host_wake_runner(shmb_host *h, int64_t key);
shmb_status shmb_host_reply_error(shmb_host *h, int64_t key, bool keep, shmb_status status,
                                  const char *text, size_t bytes);
/* The last view of a kept slot has died. */
void shmb_host_release(shmb_host *h, int64_t key);

#endif
