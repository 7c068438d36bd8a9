#include <stdlib.h>
#include <string.h>

#include "message/header.h"
#include "segment/attach.h"
#include "segment/ring.h"

static void sender_forget(struct sent *l) {
    free(l->layout);
    free(l->dims);
    *l = (struct sent){0};
}

void shmb_sender_free(struct sender *s) {
    for (int i = 0; i < MAX_LAYOUTS; i++) sender_forget(&s->layouts[i]);
}

void shmb_sender_start(struct sender *s, uint32_t generation, uint32_t free_slots) {
    shmb_sender_free(s);
    s->position = 0;
    s->generation = generation;
    s->lane.backed |= lane_all(&s->lane) & ~free_slots; /* they were used before */
    s->free = free_slots & s->lane.backed;
    s->last = 0;
    s->guess = 0;
    s->tellings = 0;
    store_relaxed(&s->lane.last->version, 0);
}

int shmb_sender_grow(struct sender *s) {
    int slot = shmb_lane_grow(&s->lane);
    if (slot >= 0) s->free |= 1u << slot;
    return slot;
}

static bool matches(const struct layout *layout, const struct builder *b) {
    if (!layout || layout->count != b->count) return false;
    if (b->guess == layout) return true; /* shmb_builder_add compared as it went */
    for (uint32_t i = 0; i < b->count; i++)
        if (!shmb_field_equal(&layout->fields[i], &b->fields[i])) return false;
    return true;
}

/* The id of the message's layout, or of the one to be replaced by it. */
static int sender_find(struct sender *s, const struct builder *b, bool *found) {
    *found = true;
    if (matches(s->layouts[s->guess].layout, b)) return s->guess;
    int oldest = 0;
    for (int i = 0; i < MAX_LAYOUTS; i++) {
        if (matches(s->layouts[i].layout, b)) return i;
        if (s->layouts[i].used < s->layouts[oldest].used) oldest = i;
    }
    *found = false;
    return oldest;
}

/* A hint for who looks from outside: the header that was introduced last (NULL: as before), and the
 * dims of its last message. */
static void tell(struct sender *s, const uint8_t *header, const struct builder *b) {
    struct last_layout *last = s->lane.last;
    uint8_t *meta = (uint8_t *)(last + 1);
    store_relaxed(&last->version, 2 * ++s->tellings - 1);
    store_fence();
    if (header) {
        put(&last->header_bytes, &s->told_bytes, sizeof last->header_bytes);
        put(&last->dims, &b->dim_count, sizeof last->dims);
        put(meta, header, s->told_bytes);
    }
    if (b->dim_count) put(meta + dims_at(s->told_bytes), b->dims, b->dim_count * sizeof *b->dims);
    store_release(&last->version, 2 * s->tellings);
}

/* Writes a new layout's header into the slot's meta, dims behind it, and knows it from now on. */
static shmb_status introduce(struct sender *s, struct builder *b, int id, int slot) {
    struct sent *l = &s->layouts[id];
    size_t size = shmb_header_write(b->fields, b->count, NULL, 0), padded = dims_at(size);
    size_t meta = padded + b->dim_count * sizeof *b->dims;
    if (!size || meta > s->lane.meta_bytes)
        return shmb_fail(b->error, SHMB_TOO_LARGE,
                         "the header of %u fields takes %zu bytes, but a slot has %zu for it: send "
                         "fewer or shorter names, or give the "
                         "host more (Host(header_bytes=...))",
                         b->count, meta, s->lane.meta_bytes);
    uint8_t *bytes = malloc(padded);
    int64_t *dims = malloc((b->dim_count + 1) * sizeof *dims);
    const char *why = shmb_out_of_memory;
    struct layout *layout = NULL;
    if (bytes && dims) {
        shmb_header_write(b->fields, b->count, bytes, padded);
        /* by the receiver's rules: what it would refuse is never sent */
        layout = shmb_header_read(bytes, size, &why);
    }
    if (layout) {
        put(lane_meta(&s->lane, (uint32_t)slot), bytes, size);
        s->told = (uint8_t)id;
        s->told_bytes = (uint32_t)size;
        tell(s, bytes, b);
        sender_forget(l);
        l->layout = layout;
        l->dims = dims;
    } else {
        free(dims);
        if (why == shmb_out_of_memory) shmb_fail(b->error, SHMB_NO_MEMORY, NO_MESSAGE ": %s", why);
        else if (!shmb_names_check(b->fields, b->count, SHMB_INVALID, NO_MESSAGE, b->error))
            shmb_fail(b->error, SHMB_INVALID, NO_MESSAGE ": %s", why);
    }
    free(bytes);
    return b->error->status;
}

static void write_dims(struct sender *s, struct sent *l, const struct builder *b, int slot,
                       size_t at) {
    size_t bytes = b->dim_count * sizeof *b->dims;
    if (!bytes) return;
    memcpy(l->dims, b->dims, bytes);
    put(lane_meta(&s->lane, (uint32_t)slot) + at, b->dims, bytes);
}

static void sender_push(struct sender *s, struct descriptor *d, const struct envelope *e) {
    d->sequence = e->sequence;
    d->generation = s->generation;
    d->returns = e->returns;
    ring_push(s->lane.ring, s->lane.count, s->position++, d);
}

shmb_status shmb_sender_send(struct sender *s, struct builder *b, int slot,
                             const struct envelope *e) {
    if (b->error->status) return b->error->status;
    bool found;
    int id = sender_find(s, b, &found);
    struct sent *l = &s->layouts[id];
    struct descriptor d = {
        .layout = (uint16_t)id, .slot = (uint8_t)slot, .flags = e->flags, .code = e->code};
    if (!found) {
        if (introduce(s, b, id, slot)) return b->error->status;
        memcpy(d.data, &s->told_bytes, sizeof s->told_bytes);
        write_dims(s, l, b, slot, dims_at(s->told_bytes));
        d.flags |= NEW;
    } else if (b->dim_count && memcmp(l->dims, b->dims, b->dim_count * sizeof *b->dims) != 0) {
        if (b->dim_count * sizeof *b->dims > s->lane.meta_bytes)
            return shmb_fail(b->error, SHMB_TOO_LARGE,
                             "the dims do not fit the slot's %zu header bytes", s->lane.meta_bytes);
        write_dims(s, l, b, slot, 0);
        if (id == s->told) tell(s, NULL, b);
        d.flags |= DIMS;
    } else if (e->may_inline && b->used <= INLINE_BYTES) {
        d.slot = NO_SLOT;
        d.flags |= INLINE;
        memcpy(d.data, b->body, b->used);
    }
    if (d.slot != NO_SLOT) {
        uint8_t *body = lane_body(&s->lane, (uint32_t)slot);
        if (b->body != body) put(body, b->body, b->used);
        s->free &= ~(1u << slot);
    }
    s->guess = (uint8_t)id;
    l->used = s->position + 1;
    sender_push(s, &d, e);
    return SHMB_OK;
}

bool shmb_sender_send_advice(struct sender *s, shmb_dtype dtype, const uint8_t *value,
                             const struct envelope *e) {
    struct sent *l = &s->layouts[s->guess];
    if (!l->layout || l->layout->count != 1 || l->layout->dims) return false;
    const struct field *f = &l->layout->fields[0];
    if (f->dtype != dtype || f->name_bytes != 6 || memcmp(f->name, "advice", 6) != 0) return false;
    struct descriptor d = {.layout = s->guess, .slot = NO_SLOT, .flags = INLINE};
    memcpy(d.data, value, sizeof(uint64_t));
    l->used = s->position + 1;
    sender_push(s, &d, e);
    return true;
}

void shmb_sender_fail(struct sender *s, int slot, const struct envelope *e, const char *text,
                      size_t bytes) {
    struct descriptor d = {.slot = NO_SLOT, .flags = FAILED | INLINE, .code = e->code};
    uint8_t *to = d.data;
    size_t room = INLINE_BYTES, kept = bytes;
    if (bytes > INLINE_BYTES && slot >= 0) {
        to = lane_body(&s->lane, (uint32_t)slot);
        room = s->lane.body_bytes < UINT16_MAX ? s->lane.body_bytes : UINT16_MAX;
        s->free &= ~(1u << slot);
        d.slot = (uint8_t)slot;
        d.flags = FAILED;
    }
    if (bytes > room) {
        kept = shmb_text_fit(text, room);
        bytes = kept + strlen(TEXT_CUT);
        put(to + kept, TEXT_CUT, strlen(TEXT_CUT));
    }
    put(to, text, kept);
    d.text = (uint16_t)bytes;
    sender_push(s, &d, e);
}
