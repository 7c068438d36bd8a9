#include "host/host_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message/convert.h"
#include "message/dtype.h"
#include "segment/ring.h"
#include "segment/wait.h"

enum { NAME_SHOWN = 100 }; /* characters, in an error */

void shmb_channel_init(struct channel *c, struct segment *segment, uint32_t index) {
    pthread_mutex_init(&c->mutex, NULL);
    c->segment = segment;
    c->runner = shmb_segment_runner_line(segment, index);
    c->said = shmb_segment_label(segment, index);
    c->line = shmb_segment_channel_line(segment, index);
    c->in.lane = shmb_segment_lane(segment, index, REQUEST);
    c->out.lane = shmb_segment_lane(segment, index, REPLY);
    c->reply.error = &c->reply_error;
    c->reply.room_option = "advice_bytes";
    for (int i = 0; i < MAX_SLOTS; i++) c->requests[i].key = -1;
}

void shmb_channel_free(struct channel *c) {
    shmb_sender_free(&c->out);
    shmb_receiver_free(&c->in);
    shmb_builder_free(&c->reply);
    for (int i = 0; i < MAX_SLOTS; i++) free((void *)c->requests[i].message.tensors);
    pthread_mutex_destroy(&c->mutex);
}

/* ---- Claim and death ---- */

void shmb_channel_retire(struct channel *c) {
    c->active = false;
    store_relaxed(&c->open, 0); /* `held` stays until the views' owner says that they are gone */
}

/* The old runner is dead (its lock was free to take), so nobody else writes here until READY. */
static void reset(struct channel *c, uint32_t generation) {
    uint32_t all = lane_all(&c->in.lane), free_slots = all & ~c->held;
    for (uint32_t i = 0; i < c->in.lane.count; i++) {
        store_relaxed(&c->in.lane.ring[i].stamp, 0);
        store_relaxed(&c->out.lane.ring[i].stamp, 0);
    }
    shmb_receiver_start(&c->in, generation);
    shmb_sender_start(&c->out, generation, lane_all(&c->out.lane));
    c->in.ours = c->held;
    c->active = true;
    take_copy(&c->pid, &c->runner->pid, sizeof c->pid);
    shmb_label_copy(c->said, c->label);
    put(&c->line->free_slots, &free_slots, sizeof free_slots);
    store_release(&c->line->ready, (uint64_t)generation << 8 | READY);
    shmb_semaphore_post(&c->line->semaphore);
}

void shmb_channel_follow_claim(struct channel *c) {
    uint64_t claim = load_acquire(&c->runner->claim);
    if (claim == c->seen) return;
    c->seen = claim;
    shmb_channel_retire(c);
    if ((claim & 0xff) == CLAIMED) reset(c, (uint32_t)(claim >> 8));
}

/* Not taken yet: is that news, or has the host had no time for it? */
static bool untaken(const struct channel *c, uint64_t position, bool idle, shmb_delay *last) {
    bool same = last->claim == c->seen && last->position == position;
    last->claim = c->seen;
    last->position = position;
    return !same || idle;
}

bool shmb_channel_delays(const struct channel *c, const char *label, bool idle, shmb_delay *last) {
    uint64_t claim = load_acquire(&c->runner->claim);
    char said[LABEL_BYTES + 1];
    if (claim != c->seen && (claim & 0xff) == CLAIMED) {
        shmb_label_copy(c->said, said);
        return !strcmp(said, label) && untaken(c, UINT64_MAX, idle, last);
    }
    if (!c->active || strcmp(c->label, label)) return false;
    return load_relaxed(&c->open) ||
           (receiver_ready(&c->in) && untaken(c, c->in.position, idle, last));
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
    shmb_semaphore_post(&c->line->semaphore);
    shmb_channel_retire(c);
    return -(int64_t)SHMB_TIMEOUT;
}

/* ---- Accept ---- */

/* Keeps what the message looks like, apart from the receiver's memory. */
static bool keep_message(struct request *q, const struct incoming *in) {
    const struct layout *l = in->of->layout;
    shmb_tensor *tensors = shmb_layout_tensors(l, in->of->dims), in_receiver;
    if (!tensors) return false;
    for (uint32_t i = 0; i < l->count; i++) {
        shmb_incoming_tensor(in, i, &in_receiver);
        tensors[i].size = in_receiver.size;
        tensors[i].offsets = in_receiver.offsets;
        tensors[i].data = in_receiver.data;
    }
    free((void *)q->message.tensors);
    q->message = (shmb_message){.count = l->count,
                                .tensors = tensors,
                                .body = in->body,
                                .body_bytes = in->of->bytes,
                                .placed = (uint32_t)in->of->placed};
    q->version = in->of->version;
    return true;
}

int64_t shmb_channel_accept(struct channel *c, uint32_t index) {
    struct incoming in;
    const char *why;
    if (shmb_receiver_take(&c->in, &in, &why)) return poison(c, why);
    const struct descriptor *d = &in.d;
    if (!in.of || d->slot == NO_SLOT) return poison(c, "a request came without a slot");
    if (!want_exists(d->code)) return poison(c, "it wants a dtype that does not exist");
    if (!sender_returns(&c->out, d->returns))
        return poison(c, "it returned slots that it did not hold");
    struct request *q = &c->requests[d->slot];
    if (q->version != in.of->version && !keep_message(q, &in))
        return poison(c, "the host is out of memory");
    q->message.want = (shmb_dtype)d->code;
    q->sequence = d->sequence;
    /* The last slot never stays with the host: what is read from it is copied. */
    uint32_t unheld = c->in.lane.backed & ~c->held;
    bool copy = d->flags & BOUND || (!(unheld & (unheld - 1)) && shmb_lane_grow(&c->in.lane) < 0);
    store_relaxed(&c->open, load_relaxed(&c->open) | 1u << d->slot);
    if (!copy) c->held |= 1u << d->slot;
    return q->key = key_of(in.of->form, copy, index, d->slot);
}

static bool is_open(const struct channel *c, int64_t key) {
    return load_relaxed(&c->open) >> key_slot(key) & 1;
}

const shmb_message *shmb_channel_message(const struct channel *c, int64_t key) {
    const struct request *q = &c->requests[key_slot(key)];
    return q->key == key && is_open(c, key) ? &q->message : NULL;
}

/* ---- Reply ---- */

void shmb_channel_release(struct channel *c, int64_t key) {
    uint32_t bit = 1u << key_slot(key);
    if (c->requests[key_slot(key)].key == key && !is_open(c, key)) c->held &= ~bit;
}

static shmb_status check_open(struct channel *c, int64_t key, bool keep) {
    if (c->requests[key_slot(key)].key == key && is_open(c, key)) return SHMB_OK;
    if (!keep) shmb_channel_release(c, key);
    return shmb_fail(&c->error, SHMB_RUNNER_GONE,
                     "the runner died, disconnected or was refused before this reply");
}

/* The envelope of a reply; the request's slot, and those whose views have died meanwhile, go back
 * with it. */
static struct envelope close_request(struct channel *c, int64_t key, bool keep) {
    uint32_t bit = 1u << key_slot(key);
    uint32_t open = load_relaxed(&c->open) & ~bit;
    store_relaxed(&c->open, open);
    if (!keep) c->held &= ~bit;
    uint32_t returns = c->in.ours & ~c->held & ~open;
    c->in.ours &= ~returns;
    return (struct envelope){
        .sequence = c->requests[key_slot(key)].sequence, .returns = returns, .may_inline = true};
}

void shmb_channel_wake(const struct channel *c) {
    shmb_waiter_wake(&c->runner->asleep, &c->line->semaphore);
}

static void sent(struct channel *c) {
    store_relaxed(&c->line->served, ++c->served);
    if (!c->unwoken) shmb_channel_wake(c);
}

shmb_status shmb_channel_reply_error(struct channel *c, int64_t key, bool keep, shmb_status status,
                                     const char *text, size_t bytes) {
    shmb_status stale = check_open(c, key, keep);
    if (stale) return stale;
    struct envelope e = close_request(c, key, keep);
    e.code = (uint8_t)status;
    shmb_sender_fail(&c->out, sender_slot(&c->out), &e, text, bytes);
    sent(c);
    return SHMB_OK;
}

/* Sends what c->reply holds; what cannot be sent reaches the runner as an error. */
static shmb_status send_reply(struct channel *c, struct envelope *e, int slot) {
    shmb_status status = shmb_sender_send(&c->out, &c->reply, slot, e);
    if (status) {
        c->error = c->reply_error;
        e->code = (uint8_t)status;
        shmb_sender_fail(&c->out, slot, e, c->error.message, strlen(c->error.message));
    }
    shmb_builder_clear(&c->reply);
    sent(c);
    return status;
}

/* The slot for a reply. A runner that keeps them all is refused, never waited for. */
static int reply_slot(struct channel *c, int64_t key, bool keep) {
    int slot = sender_slot(&c->out);
    if (slot >= 0) return slot;
    if (lane_all(&c->out.lane) & ~c->out.lane.backed) {
        static const char full[] = "/dev/shm is full"; /* as a reply without a slot can hold it */
        shmb_channel_reply_error(c, key, keep, SHMB_NO_MEMORY, full, strlen(full));
        shmb_fail(&c->error, SHMB_NO_MEMORY, "no reply slot: %s", full);
        return -1;
    }
    poison(c, "it returned no reply slot");
    check_open(c, key, false);
    return -1;
}

/* The slot for the reply to a request that is open; -1: none, and c->error says why. */
static inline int start_reply(struct channel *c, int64_t key, bool keep) {
    c->error.status = SHMB_OK;
    return check_open(c, key, keep) ? -1 : reply_slot(c, key, keep);
}

static shmb_status send_scalar(struct channel *c, int64_t key, bool keep, shmb_dtype dtype,
                               const uint8_t *value) {
    int slot = start_reply(c, key, keep);
    if (slot < 0) return c->error.status;
    struct envelope e = close_request(c, key, keep);
    if (shmb_sender_send_advice(&c->out, dtype, value, &e)) {
        sent(c);
        return SHMB_OK;
    }
    uint8_t body[8];
    c->reply_error.status = SHMB_OK;
    shmb_builder_start(&c->reply, body, sizeof body, sender_guess(&c->out));
    void *at = shmb_builder_add(&c->reply, "advice", dtype, SHMB_TENSOR, 0, NULL, NULL);
    memcpy(at, value, shmb_dtype_size(dtype));
    return send_reply(c, &e, slot);
}

/* A number that its runner's dtype has no room for. */
static shmb_status refuse_inexact(struct channel *c, int64_t key, bool keep, const shmb_tensor *t,
                                  shmb_dtype want) {
    char what[NAME_SHOWN + 64];
    if (t->rank)
        snprintf(what, sizeof what, "\"%.*s\" of dtype %s", NAME_SHOWN, t->name,
                 shmb_dtype_name(t->dtype));
    else shmb_number_text(shmb_number_at(t->data, t->dtype), what);
    shmb_fail(
        &c->error, SHMB_INEXACT,
        "the advice %s is not exactly representable as %s, which the runner asked for: return "
        "a decision, such as x > 0, or its exact value",
        what, shmb_dtype_name(want));
    shmb_status status = shmb_channel_reply_error(c, key, keep, SHMB_INEXACT, c->error.message,
                                                  strlen(c->error.message));
    return status ? status : SHMB_INEXACT;
}

/* Puts the fields into the slot; false when the only one cannot be as wanted. What else is wrong
 * sticks in the builder, and sending it says so. */
static bool build_reply(struct channel *c, int slot, const shmb_tensor *fields, int64_t count,
                        shmb_dtype want) {
    c->reply_error.status = SHMB_OK;
    shmb_builder_start(&c->reply, lane_body(&c->out.lane, (uint32_t)slot), c->out.lane.body_bytes,
                       sender_guess(&c->out));
    for (int64_t i = 0; i < count; i++) {
        const shmb_tensor *t = &fields[i];
        bool text = t->kind == SHMB_STRING || t->kind == SHMB_STRINGS; /* of one dtype alone */
        shmb_dtype as = want == SHMB_ANY || text ? t->dtype : want;
        int64_t *offsets;
        void *at = shmb_builder_add(&c->reply, t->name, as, t->kind, t->rank, t->dims, &offsets);
        if (!at || c->reply_error.status) return true; /* send says why */
        if (t->offsets) put(offsets, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *offsets);
        if (as != t->dtype && shmb_convert_tensor(t, as, at) >= 0) return false;
        if (as == t->dtype && t->size) put(at, t->data, (size_t)t->size * shmb_dtype_size(as));
    }
    return true;
}

shmb_status shmb_channel_reply(struct channel *c, int64_t key, bool keep, const shmb_tensor *fields,
                               int64_t count) {
    shmb_dtype want = count == 1 ? c->requests[key_slot(key)].message.want : SHMB_ANY;
    if (count == 1 && !fields->rank && strcmp(fields->name, "advice") == 0) {
        _Alignas(8) uint8_t value[8] = {0};
        if (want == SHMB_ANY) want = fields->dtype;
        if (want == fields->dtype) memcpy(value, fields->data, shmb_dtype_size(want));
        else if (shmb_convert_tensor(fields, want, value) >= 0)
            return refuse_inexact(c, key, keep, fields, want);
        return send_scalar(c, key, keep, want, value);
    }
    int slot = start_reply(c, key, keep);
    if (slot < 0) return c->error.status;
    if (!build_reply(c, slot, fields, count, want)) {
        shmb_builder_clear(&c->reply);
        return refuse_inexact(c, key, keep, fields, want);
    }
    struct envelope e = close_request(c, key, keep);
    return send_reply(c, &e, slot);
}
