/* One channel as the host has it: whose claim it is, which requests are open, which slots views
 * still hold. Its caller holds the mutex, except where it says otherwise. */
#ifndef SHMB_HOST_CHANNEL_H
#define SHMB_HOST_CHANNEL_H

#include <assert.h>
#include <pthread.h>

#include "host/host.h"
#include "segment/attach.h"
#include "segment/channel.h"

enum { KEY_VERSION_AT = 16 };
static_assert(MAX_SLOTS == 1 << SHMB_KEY_SLOT_BITS, "a key has room for any slot");
static_assert(MAX_CHANNELS << SHMB_KEY_SLOT_BITS <= SHMB_KEY_PLACE,
              "a key has room for any channel");

static inline int64_t key_of(uint64_t version, bool copy, uint32_t channel, uint32_t slot) {
    uint64_t place = (uint64_t)copy * SHMB_KEY_COPY | channel << SHMB_KEY_SLOT_BITS | slot;
    return (int64_t)((version << KEY_VERSION_AT & INT64_MAX) | place); /* negative is an error */
}
static inline uint32_t key_slot(int64_t key) { return key & (MAX_SLOTS - 1); }
static inline uint32_t key_channel(int64_t key) {
    return (key & SHMB_KEY_PLACE) >> SHMB_KEY_SLOT_BITS;
}

/* What a slot's request was, in private memory: later messages of its layout do not change it. */
struct request {
    int64_t key; /* -1: none yet */
    uint64_t sequence, version;
    shmb_message message;
};

struct channel {
    pthread_mutex_t mutex;
    struct segment *segment;
    struct runner_line *runner;
    const struct label *said;
    struct channel_line *line;
    uint64_t seen; /* the claim word last followed */
    bool active;   /* claimed, made ready, not poisoned, not known dead */
    /* slots with a request that has no reply yet; read without the mutex as a hint */
    _Atomic uint32_t open;
    uint32_t held; /* slots whose bytes must not change: open and not copied, or kept by views */
    uint64_t served;
    struct receiver in;
    struct sender out;
    struct builder reply;
    struct error reply_error; /* what stuck while building */
    bool unwoken;             /* replies leave it to their caller to wake the runner */
    struct error error;
    uint32_t pid; /* what the runner says of itself */
    char label[LABEL_BYTES + 1];
    struct request requests[MAX_SLOTS];
};

void shmb_channel_init(struct channel *c, struct segment *segment, uint32_t index);
void shmb_channel_free(struct channel *c);
/* A claim that was not there before: retires the old runner, resets the channel, says READY. */
void shmb_channel_follow_claim(struct channel *c);
/* The runner is gone: its open requests are no more. */
void shmb_channel_retire(struct channel *c);
/* As shmb_host_delays. idle: the host has not received since the last look. */
bool shmb_channel_delays(const struct channel *c, const char *label, bool idle, shmb_delay *last);
/* Takes the request that is ready: its key. -SHMB_TIMEOUT: it lied, and the channel is poisoned. */
int64_t shmb_channel_accept(struct channel *c, uint32_t index);
const shmb_message *shmb_channel_message(const struct channel *c, int64_t key);
shmb_status shmb_channel_reply(struct channel *c, int64_t key, bool keep, const shmb_tensor *fields,
                               int64_t count);
/* Wakes the runner, if it sleeps; needs no mutex. */
void shmb_channel_wake(const struct channel *c);
shmb_status shmb_channel_reply_error(struct channel *c, int64_t key, bool keep, shmb_status status,
                                     const char *text, size_t bytes);
void shmb_channel_release(struct channel *c, int64_t key);

#endif
