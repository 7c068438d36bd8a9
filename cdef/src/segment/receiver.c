#include <stdlib.h>
#include <string.h>

#include "message/header.h"
#include "segment/attach.h"
#include "segment/ring.h"

static void receiver_forget(struct known *k) {
    free(k->layout);
    free(k->dims);
    free(k->places);
    *k = (struct known){0};
}

static void forget_layouts(struct receiver *r) {
    for (int i = 0; i < MAX_LAYOUTS; i++) receiver_forget(&r->layouts[i]);
}

void shmb_receiver_free(struct receiver *r) {
    forget_layouts(r);
    for (int i = 0; i <= MAX_SLOTS; i++) free(r->lists[i].offsets);
}

void shmb_receiver_start(struct receiver *r, uint32_t generation) {
    forget_layouts(r);
    r->position = 0;
    r->generation = generation;
    r->ours = 0;
}

/* Copies the header out of the slot, verifies the copy, and forgets what the id meant. */
static const char *learn_layout(struct known *k, const uint8_t *meta, size_t size) {
    const char *why = shmb_out_of_memory;
    uint8_t *copy = malloc(size);
    if (!copy) return why;
    take_copy(copy, meta, size);
    struct layout *layout = shmb_header_read(copy, size, &why);
    free(copy);
    if (!layout) return why;
    receiver_forget(k);
    k->layout = layout;
    k->dims = calloc(2 * layout->dims + 1, sizeof *k->dims);
    k->places = calloc(layout->count + 1, sizeof *k->places);
    return k->dims && k->places ? NULL : shmb_out_of_memory;
}

/* Copies the dims out of the slot and computes where each field lies. */
static const char *learn_dims(struct receiver *r, struct known *k, const uint8_t *meta,
                              size_t body_bytes) {
    int64_t *dims = k->dims + k->layout->dims;
    take_copy(dims, meta, k->layout->dims * sizeof *dims);
    bool changed = !k->version, moved = changed;
    size_t end = 0, offsets = 0;
    for (uint32_t i = 0; i < k->layout->count; i++) {
        const struct field *f = &k->layout->fields[i];
        size_t was = k->places[i].values, bytes = field_dims(f) * sizeof *dims;
        if (!shmb_field_place(f, dims, end, &k->places[i])) return "its dims overflow";
        end = k->places[i].end;
        if (kind_is_list(f->kind)) offsets += (size_t)dims[0] + 1;
        if (f->kind != SHMB_STRING) {
            changed |= bytes && memcmp(dims, dims - k->layout->dims, bytes) != 0;
            moved |= k->places[i].values != was;
        }
        dims += field_dims(f);
    }
    if (end > body_bytes) return "its dims ask for more bytes than a slot has";
    k->bytes = end;
    k->offsets = offsets;
    memcpy(k->dims, k->dims + k->layout->dims, k->layout->dims * sizeof *dims);
    k->version = ++r->versions;
    if (changed) k->form = k->version;
    if (moved) k->placed = k->version;
    return NULL;
}

/* Out of line: steady traffic has nothing to learn. */
static __attribute__((noinline)) const char *learn(struct receiver *r, struct known *k,
                                                   const struct descriptor *d) {
    if (d->slot == NO_SLOT) return "a new layout came without a slot";
    const uint8_t *meta = lane_meta(&r->lane, d->slot);
    size_t at = 0, room = r->lane.meta_bytes;
    const char *why = NULL;
    if (d->flags & NEW) {
        uint32_t header;
        memcpy(&header, d->data, sizeof header);
        if (header > room) return "its header is longer than a slot has room for";
        if ((why = learn_layout(k, meta, header))) return why;
        at = dims_at(header);
    }
    if (at > room || k->layout->dims * sizeof *k->dims > room - at)
        return "its dims are more than a slot has room for";
    return learn_dims(r, k, meta + at, r->lane.body_bytes);
}

/* Copies the offsets of the message's lists and checks the copies. */
static const char *copy_lists(struct receiver *r, struct incoming *in, uint32_t slot) {
    const struct known *k = in->of;
    const int64_t *dims = k->dims;
    in->lists = NULL;
    if (!k->offsets) return NULL;
    if (k->offsets > r->lists[slot].room) {
        int64_t *more = realloc(r->lists[slot].offsets, k->offsets * sizeof *more);
        if (!more) return shmb_out_of_memory;
        r->lists[slot].offsets = more;
        r->lists[slot].room = k->offsets;
    }
    int64_t *to = r->lists[slot].offsets;
    in->lists = to;
    for (uint32_t i = 0; i < k->layout->count; i++) {
        const struct field *f = &k->layout->fields[i];
        if (kind_is_list(f->kind)) {
            take_copy(to, in->body + k->places[i].offsets, ((size_t)dims[0] + 1) * sizeof *to);
            if (!shmb_offsets_valid(to, dims[0], dims[1]))
                return "a list's offsets decrease, or do not end at its number of values";
            to += dims[0] + 1;
        }
        dims += field_dims(f);
    }
    return NULL;
}

static const char *take_failure(struct receiver *r, struct incoming *in) {
    const struct descriptor *d = &in->d;
    bool in_slot = d->slot != NO_SLOT;
    if (d->text > (in_slot ? r->lane.body_bytes : (size_t)INLINE_BYTES))
        return "its text is longer than its place";
    in->text = (const char *)(in_slot ? lane_body(&r->lane, d->slot) : d->data);
    return NULL;
}

static const char *take(struct receiver *r, struct incoming *in) {
    const struct descriptor *d = &in->d;
    if (d->generation != r->generation) return "it belongs to another claim";
    if (d->flags & ~ALL_FLAGS) return "it has unknown flags";
    if (d->slot != NO_SLOT) {
        if (d->slot >= r->lane.count) return "it names a slot that does not exist";
        if (!((r->lane.backed & ~r->ours) >> d->slot & 1)) {
            if (r->ours >> d->slot & 1) return "it names a slot that was not the sender's";
            if (!shmb_lane_back(&r->lane, d->slot)) return "/dev/shm has no room for its slot";
        }
    }
    if ((d->slot == NO_SLOT) != !!(d->flags & INLINE))
        return "its bytes must be either in a slot or inline";
    if (d->flags & FAILED) return take_failure(r, in);
    if (d->layout >= MAX_LAYOUTS) return "its layout id does not exist";
    struct known *k = &r->layouts[d->layout];
    if (d->flags & (NEW | DIMS)) {
        if (!(d->flags & NEW) && !k->layout) return "its layout id was never introduced";
        const char *why = learn(r, k, d);
        if (why) return why;
    }
    if (!k->layout) return "its layout id was never introduced";
    in->of = k;
    in->body = d->slot == NO_SLOT ? d->data : lane_body(&r->lane, d->slot);
    if (d->slot == NO_SLOT && k->bytes > INLINE_BYTES) return "it is too long to be inline";
    return copy_lists(r, in, d->slot == NO_SLOT ? (uint32_t)MAX_SLOTS : d->slot);
}

shmb_status shmb_receiver_take(struct receiver *r, struct incoming *in, const char **why) {
    ring_take(r->lane.ring, r->lane.count, r->position, &in->d);
    /* on its way while we check */
    if (in->d.slot < r->lane.count) __builtin_prefetch(lane_body(&r->lane, in->d.slot));
    in->of = NULL;
    in->text = NULL;
    in->lists = NULL;
    if ((*why = take(r, in))) return SHMB_CORRUPT;
    r->position++;
    if (in->d.slot != NO_SLOT) r->ours |= 1u << in->d.slot;
    return SHMB_OK;
}

void shmb_incoming_tensor(const struct incoming *in, uint32_t field, shmb_tensor *out) {
    const struct known *k = in->of;
    const int64_t *dims = k->dims, *lists = in->lists;
    for (uint32_t i = 0; i < field; i++) {
        const struct field *f = &k->layout->fields[i];
        if (kind_is_list(f->kind)) lists += dims[0] + 1;
        dims += field_dims(f);
    }
    const struct field *f = &k->layout->fields[field];
    *out = field_tensor(f, dims);
    out->size = k->places[field].size;
    out->data = in->body + k->places[field].values;
    if (kind_is_list(f->kind)) out->offsets = lists;
}
