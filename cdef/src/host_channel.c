#include "host_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "wait.h"

void channel_init(struct channel *c, struct segment *segment, uint32_t index, struct error *e) {
    pthread_mutex_init(&c->mutex, NULL);
    c->segment = segment;
    c->runner = segment_runner_line(segment, index);
    c->line = segment_channel_line(segment, index);
    c->in.lane = segment_lane(segment, index, REQUEST);
    c->out.lane = segment_lane(segment, index, REPLY);
    c->reply.error = &c->reply_error;
    c->building = -1;
    c->bell = segment_bell(segment, (int)index, e);
    for (int i = 0; i < MAX_SLOTS; i++) c->requests[i].key = -1;
}

void channel_free(struct channel *c) {
    sender_free(&c->out);
    receiver_free(&c->in);
    builder_free(&c->reply);
    for (int i = 0; i < MAX_SLOTS; i++) free((void *)c->requests[i].message.tensors);
    if (c->bell) sem_close(c->bell);
    pthread_mutex_destroy(&c->mutex);
}

/* ---- Claim and death ---- */

void channel_retire(struct channel *c) {
    c->active = false;
    c->open = 0; /* `held` stays until the views' owner says that they are gone */
}

/* The old runner is dead (its lock was free to take), so nobody else writes here until READY. */
static void reset(struct channel *c, uint32_t generation) {
    uint32_t all = lane_all(&c->in.lane), free_slots = all & ~c->held;
    for (uint32_t i = 0; i < c->in.lane.count; i++) {
        store_relaxed(&c->in.lane.ring[i].stamp, 0);
        store_relaxed(&c->out.lane.ring[i].stamp, 0);
    }
    receiver_start(&c->in, generation);
    sender_start(&c->out, generation, lane_all(&c->out.lane));
    c->in.ours = c->held;
    c->active = true;
    put(&c->line->free_slots, &free_slots, sizeof free_slots);
    store_release(&c->line->ready, (uint64_t)generation << 8 | READY);
    sem_post(c->bell);
}

void channel_follow_claim(struct channel *c) {
    uint64_t claim = load_acquire(&c->runner->claim);
    if (claim == c->seen || c->building >= 0) return;
    c->seen = claim;
    channel_retire(c);
    if ((claim & 0xff) == CLAIMED) reset(c, (uint32_t)(claim >> 8));
}

/* The runner lied: it is told why, and heard no more until the channel is claimed anew. */
static int64_t poison(struct channel *c, const char *why) {
    char reason[REASON_BYTES];
    uint32_t bytes = (uint32_t)snprintf(
        reason, sizeof reason,
        "the host refuses this channel, since a message broke the protocol: %s", why);
    if (bytes >= sizeof reason) bytes = sizeof reason - 1;
    put(c->line->reason, reason, bytes);
    put(&c->line->reason_bytes, &bytes, sizeof bytes);
    store_release(&c->line->ready, (uint64_t)c->in.generation << 8 | POISONED);
    sem_post(c->bell);
    channel_retire(c);
    return -1;
}

/* ---- Accept ---- */

/* Keeps what the message looks like, apart from the receiver's memory. One allocation: tensors, dims, names. */
static bool keep_message(struct request *q, const struct incoming *in) {
    const struct layout *l = in->of->layout;
    size_t bytes = l->count * sizeof(shmb_tensor) + l->dims * sizeof(int64_t) + 1;
    for (uint32_t i = 0; i < l->count; i++) bytes += l->fields[i].name_bytes + 1;
    shmb_tensor *tensors = malloc(bytes);
    if (!tensors) return false;
    int64_t *dims = (int64_t *)(tensors + l->count);
    char *names = (char *)(dims + l->dims);
    for (uint32_t i = 0; i < l->count; i++) {
        const struct field *f = &l->fields[i];
        incoming_tensor(in, i, &tensors[i]);
        tensors[i].dims = memcpy(dims, tensors[i].dims, field_dims(f) * sizeof *dims);
        tensors[i].name = memcpy(names, f->name, f->name_bytes + 1);
        dims += field_dims(f);
        names += f->name_bytes + 1;
    }
    free((void *)q->message.tensors);
    q->message = (shmb_message){
        .count = l->count, .tensors = tensors, .body = in->body, .body_bytes = in->of->bytes};
    q->version = in->of->version;
    return true;
}

int64_t channel_accept(struct channel *c, uint32_t index) {
    struct incoming in;
    const char *why;
    if (receiver_take(&c->in, &in, &why)) return poison(c, why);
    const struct descriptor *d = &in.d;
    if (!in.of || d->slot == NO_SLOT) return poison(c, "a request came without a slot");
    if (d->code > SHMB_BFLOAT16) return poison(c, "it wants a dtype that does not exist");
    if (!sender_returns(&c->out, d->returns))
        return poison(c, "it returned slots that it did not have");
    struct request *q = &c->requests[d->slot];
    if (q->version != in.of->version && !keep_message(q, &in))
        return poison(c, "the host is out of memory");
    q->message.want = (shmb_dtype)d->code;
    q->message.bound = d->flags & BOUND;
    q->sequence = d->sequence;
    /* The last slot never stays with the host: what is read from it is copied. */
    bool copy = q->message.bound || __builtin_popcount(c->held) + 1 >= (int)c->in.lane.count;
    c->open |= 1u << d->slot;
    if (!copy) c->held |= 1u << d->slot;
    return q->key = (int64_t)(in.of->version << 16) | (int64_t)copy << 15 | index << 5 | d->slot;
}

const shmb_message *channel_message(const struct channel *c, int64_t key) {
    const struct request *q = &c->requests[key_slot(key)];
    return q->key == key && c->open >> key_slot(key) & 1 ? &q->message : NULL;
}

bool channel_offsets(const struct channel *c, int64_t key, int64_t index, int64_t *out) {
    const shmb_message *m = channel_message(c, key);
    if (!m || index < 0 || index >= m->count || !m->tensors[index].offsets) return false;
    memcpy(out, m->tensors[index].offsets, ((size_t)m->tensors[index].dims[0] + 1) * sizeof *out);
    return true;
}

shmb_dtype channel_want(const struct channel *c, int64_t key) {
    return c->requests[key_slot(key)].message.want;
}

/* ---- Reply ---- */

void channel_release(struct channel *c, int64_t key) {
    uint32_t bit = 1u << key_slot(key);
    if (c->requests[key_slot(key)].key == key && !(c->open & bit)) c->held &= ~bit;
}

static shmb_status check_open(struct channel *c, int64_t key, bool keep) {
    if (c->requests[key_slot(key)].key == key && c->open >> key_slot(key) & 1) return SHMB_OK;
    if (!keep) channel_release(c, key);
    return fail(&c->error, SHMB_RUNNER_GONE,
                "the runner died, left or was refused before this reply");
}

/* The envelope of a reply; the request's slot, and those whose views have died meanwhile, go back with it. */
static struct envelope close_request(struct channel *c, int64_t key, bool keep) {
    uint32_t bit = 1u << key_slot(key);
    c->open &= ~bit;
    if (!keep) c->held &= ~bit;
    uint32_t returns = c->in.ours & ~c->held & ~c->open;
    c->in.ours &= ~returns;
    return (struct envelope){
        .sequence = c->requests[key_slot(key)].sequence, .returns = returns, .may_inline = true};
}

static void sent(struct channel *c) {
    store_relaxed(&c->line->served, ++c->served);
    waiter_wake(&c->runner->asleep, c->bell, &c->line->posted);
}

/* The slot in which this key's reply was being built is free again; other replies could not take it meanwhile. */
static bool end_building(struct channel *c, int64_t key) {
    if (c->building != key) return false;
    c->building = -1;
    c->out.free |= 1u << c->reply_slot;
    return true;
}

shmb_status channel_reply_error(struct channel *c, int64_t key, bool keep, shmb_status status,
                                const char *text, size_t bytes) {
    end_building(c, key);
    shmb_status stale = check_open(c, key, keep);
    if (stale) return stale;
    struct envelope e = close_request(c, key, keep);
    e.code = (uint8_t)status;
    sender_fail(&c->out, sender_slot(&c->out), &e, text, bytes);
    sent(c);
    return SHMB_OK;
}

/* Sends what c->reply holds; what cannot be sent reaches the runner as an error. */
static shmb_status send_reply(struct channel *c, struct envelope *e, int slot) {
    shmb_status status = sender_send(&c->out, &c->reply, slot, e);
    if (status) {
        c->error = c->reply_error;
        e->code = (uint8_t)status;
        sender_fail(&c->out, slot, e, c->error.message, strlen(c->error.message));
    }
    builder_clear(&c->reply);
    sent(c);
    return status;
}

/* The slot for a reply. None free is a runner that keeps them all: it is refused, never waited for. */
static int reply_slot(struct channel *c, int64_t key) {
    int slot = sender_slot(&c->out);
    if (slot >= 0) return slot;
    poison(c, "it gave no reply slot back");
    check_open(c, key, false);
    return -1;
}

shmb_status channel_reply_scalar(struct channel *c, int64_t key, bool keep, shmb_dtype dtype,
                                 const uint8_t *value) {
    c->error.status = SHMB_OK;
    if (check_open(c, key, keep)) return c->error.status;
    if (c->building >= 0)
        return fail(&c->error, SHMB_INVALID,
                    "another reply is being built on this channel: send it first");
    int slot = reply_slot(c, key);
    if (slot < 0) return c->error.status;
    struct envelope e = close_request(c, key, keep);
    if (sender_send_advice(&c->out, dtype, value, &e)) {
        sent(c);
        return SHMB_OK;
    }
    uint8_t body[8];
    c->reply_error.status = SHMB_OK;
    builder_start(&c->reply, body, sizeof body, sender_guess(&c->out));
    void *at = builder_add(&c->reply, "advice", dtype, SHMB_TENSOR, 0, NULL, NULL);
    memcpy(at, value, shmb_dtype_size(dtype));
    return send_reply(c, &e, slot);
}

shmb_status channel_reply_begin(struct channel *c, int64_t key) {
    c->error.status = SHMB_OK;
    if (check_open(c, key, true)) return c->error.status;
    if (c->building >= 0)
        return fail(&c->error, SHMB_INVALID,
                    "another reply is being built on this channel: send it first");
    if ((c->reply_slot = reply_slot(c, key)) < 0) return c->error.status;
    c->out.free &= ~(1u << c->reply_slot);
    c->reply_error.status = SHMB_OK;
    builder_start(&c->reply, lane_body(&c->out.lane, (uint32_t)c->reply_slot),
                  c->out.lane.body_bytes, sender_guess(&c->out));
    c->building = key;
    return SHMB_OK;
}

shmb_status channel_reply_send(struct channel *c, int64_t key, bool keep) {
    bool building = end_building(c, key);
    if (check_open(c, key, keep))
        return c->error.status; /* also when the runner went while it was being built */
    if (!building) return fail(&c->error, SHMB_INVALID, "no reply was begun");
    struct envelope e = close_request(c, key, keep);
    return send_reply(c, &e, c->reply_slot);
}
