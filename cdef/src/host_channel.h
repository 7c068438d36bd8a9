/* One channel as the host has it: whose claim it is, which requests are open, which slots views still hold.
 * Its caller holds the mutex, except where it says otherwise. */
#ifndef SHMB_HOST_CHANNEL_H
#define SHMB_HOST_CHANNEL_H

#include <pthread.h>
#include <semaphore.h>

#include "attach.h"
#include "channel.h"
#include "host.h"

static inline uint32_t key_slot(int64_t key) { return key & 31; }
static inline uint32_t key_channel(int64_t key) { return key >> 5 & 255; }

/* What a slot's request was, in private memory: later messages of the same layout do not change it. */
struct request {
    int64_t key; /* -1: none yet */
    uint64_t sequence, version;
    shmb_message message;
};

struct channel {
    pthread_mutex_t mutex;
    struct segment *segment;
    struct runner_line *runner;
    struct channel_line *line;
    sem_t *bell;
    uint64_t seen; /* the claim word last followed */
    bool active;   /* claimed, made ready, not poisoned, not known dead */
    int64_t
        building; /* the key whose reply is being built in reply_slot, or -1; claims wait meanwhile */
    uint32_t open; /* slots with a request that has no reply yet */
    uint32_t held; /* slots whose bytes must not change: open and not copied, or kept by views */
    uint64_t versions, served;
    struct receiver in;
    struct sender out;
    struct builder reply;
    struct error reply_error; /* what stuck while building */
    int reply_slot;
    struct error error;
    struct request requests[MAX_SLOTS];
};

void channel_init(struct channel *c, struct segment *segment, uint32_t index, struct error *e);
void channel_free(struct channel *c);
/* A claim that was not there before: retires the old runner, resets the channel, says READY. */
void channel_follow_claim(struct channel *c);
/* The runner is gone: its open requests are no more. */
void channel_retire(struct channel *c);
/* Takes the request that is ready. Its key, or -1 when it lied and the channel is now poisoned. */
int64_t channel_accept(struct channel *c, uint32_t index);
const shmb_message *channel_message(const struct channel *c, int64_t key);
bool channel_offsets(const struct channel *c, int64_t key, int64_t index, int64_t *out);
shmb_dtype channel_want(const struct channel *c, int64_t key);
shmb_status channel_reply_scalar(struct channel *c, int64_t key, bool keep, shmb_dtype dtype,
                                 const uint8_t *value);
shmb_status channel_reply_begin(struct channel *c, int64_t key);
shmb_status channel_reply_send(struct channel *c, int64_t key, bool keep);
shmb_status channel_reply_error(struct channel *c, int64_t key, bool keep, shmb_status status,
                                const char *text, size_t bytes);
void channel_release(struct channel *c, int64_t key);

#endif
