/* One direction of a channel: the sender's end and the receiver's. The runner sends requests and
 * receives replies, the host the other way round; the code is the same. Nothing read from shared
 * memory is used before it is copied and checked. */
#ifndef SHMB_CHANNEL_H
#define SHMB_CHANNEL_H

#include "message/builder.h"
#include "segment/ring.h"

/* Where a direction's ring and slots lie: private copies of the geometry, checked at attach. */
struct segment;

struct lane {
    const struct segment *segment;
    struct descriptor *ring;
    uint8_t *slots;
    struct last_layout *last;
    uint32_t count;  /* slots and descriptors */
    uint32_t backed; /* slots that have memory; the others get theirs at first use */
    size_t meta_bytes, body_bytes, slot_bytes;
};

static inline uint8_t *lane_meta(const struct lane *l, uint32_t slot) {
    return l->slots + slot * l->slot_bytes;
}
static inline uint8_t *lane_body(const struct lane *l, uint32_t slot) {
    return lane_meta(l, slot) + l->meta_bytes;
}
static inline uint32_t lane_all(const struct lane *l) {
    return l->count == 32 ? ~0u : (1u << l->count) - 1;
}

/* What a layout id means to the receiver, as the sender has told it. */
struct sent {
    struct layout *layout; /* NULL: the id is unused */
    int64_t *dims;         /* of the last message */
    uint64_t used;         /* when last, for least-recently-used */
};

struct sender {
    struct lane lane;
    uint64_t position;
    uint32_t generation;
    uint32_t free; /* slots that are ours and have memory: the credit to send */
    uint8_t last;  /* the slot that came back last: still in this core's cache */
    uint8_t guess; /* the layout id used last */
    /* the one that was introduced last, and its header's size */
    uint8_t told;
    uint32_t told_bytes;
    uint64_t tellings;
    struct sent layouts[MAX_LAYOUTS];
};

struct envelope {
    uint64_t sequence;
    uint32_t returns;
    uint8_t code, flags;
    bool may_inline;
};

void shmb_sender_start(struct sender *s, uint32_t generation, uint32_t free);
void shmb_sender_free(struct sender *s);
/* One more slot gets memory and is the sender's; -1: all have some, or /dev/shm is full. */
__attribute__((cold)) int shmb_sender_grow(struct sender *s);
/* The slot that the next message should use, or -1 when none is ours. */
static inline int sender_slot(struct sender *s) {
    if (!s->free) return shmb_sender_grow(s);
    return s->free >> s->last & 1 ? s->last : __builtin_ctz(s->free);
}

/* Slots come back; false when one of them was ours already: a lie. */
static inline bool sender_returns(struct sender *s, uint32_t slots) {
    if (!slots) return true;
    if (slots & s->free || slots & ~s->lane.backed) return false;
    s->free |= slots;
    s->last = (uint8_t)__builtin_ctz(slots);
    return true;
}

static inline const struct layout *sender_guess(const struct sender *s) {
    return s->layouts[s->guess].layout;
}
/* Sends what was built in (or is now copied into) that slot's body. The slot is no longer ours,
 * unless the message went inline. Errors, with nothing sent: what stuck in the builder, INVALID,
 * TOO_LARGE, NO_MEMORY. */
shmb_status shmb_sender_send(struct sender *s, struct builder *b, int slot,
                             const struct envelope *e);
/* Sends a scalar called "advice", inline, when the last message was one too: then there is nothing
 * to build. */
bool shmb_sender_send_advice(struct sender *s, shmb_dtype dtype, const uint8_t *value,
                             const struct envelope *e);
/* Sends a failure and its text, cut to what fits; inline when slot is -1. */
void shmb_sender_fail(struct sender *s, int slot, const struct envelope *e, const char *text,
                      size_t bytes);

/* A layout id as the receiver knows it. */
struct known {
    struct layout *layout;
    int64_t *dims;         /* and behind them room for the next message's */
    struct extent *places; /* of each field in the body */
    size_t bytes, offsets; /* of the body; of all lists together, how many */
    /* Numbers that a receiver never uses twice. Another version: other layout or dims; another
     * form: the same, but for the lengths of strings; another placed: tensors or lists moved. */
    uint64_t version, form, placed;
};

struct receiver {
    struct lane lane;
    uint64_t position;
    uint32_t generation;
    uint32_t ours; /* slots that the sender has handed over */
    uint64_t versions;
    struct known layouts[MAX_LAYOUTS];
    struct {
        int64_t *offsets; /* verified copies of the lists' offsets, one list after another */
        size_t room;
    } lists[MAX_SLOTS + 1];
};

struct incoming {
    struct descriptor d;    /* a private copy */
    const struct known *of; /* NULL for a failure */
    const uint8_t *body;    /* in the slot, or in d.data */
    const int64_t *lists;   /* the offsets of its lists, one after another; NULL without lists */
    /* of a failure; d.text bytes, in the slot or in d.data: copy, never trust */
    const char *text;
};

void shmb_receiver_start(struct receiver *r, uint32_t generation);
void shmb_receiver_free(struct receiver *r);
static inline bool receiver_ready(const struct receiver *r) {
    return ring_has(r->lane.ring, r->lane.count, r->position);
}
/* Takes the message that is ready. SHMB_CORRUPT with *why when it lies; then nothing more may be
 * taken. */
shmb_status shmb_receiver_take(struct receiver *r, struct incoming *in, const char **why);
void shmb_incoming_tensor(const struct incoming *in, uint32_t field, shmb_tensor *out);

#endif
