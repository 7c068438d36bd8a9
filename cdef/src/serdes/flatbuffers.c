/* The native SerDes: what a slot of shared memory holds, in one piece. docs/protocol.md has the
 * format. */
#include <stdlib.h>
#include <string.h>

#include "message/dtype.h"
#include "message/header.h"
#include "serdes/serdes.h"

enum { FRONT = 8 };

/* ---- Encode ---- */

static size_t list_bytes(const shmb_tensor *t) {
    return ((size_t)t->dims[0] + 1) * sizeof *t->offsets;
}

/* Zeros to `until`, which then is where the frame goes on. */
static uint8_t *pad(uint8_t *from, uint8_t *until) {
    memset(from, 0, (size_t)(until - from));
    return until;
}

static uint8_t *flatbuffers_put(uint8_t *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);
    return to + size;
}

static void write_frame(const shmb_tensor *tensors, const struct field *fields, uint32_t n,
                        shmb_dtype want, size_t header, size_t body, uint8_t *to) {
    uint8_t *at = flatbuffers_put(flatbuffers_put(to, &(uint32_t){want}, 4),
                                  &(uint32_t){(uint32_t)header}, 4);
    size_t dims_at = FRONT + header;
    shmb_header_write(fields, n, at, header);
    round_up(&dims_at, 8);
    at = pad(at + header, to + dims_at);
    for (uint32_t i = 0; i < n; i++)
        at = flatbuffers_put(at, tensors[i].dims, field_dims(&fields[i]) * sizeof(int64_t));
    at = to = pad(at, to + body);
    struct extent place = {0};
    for (uint32_t i = 0; i < n; i++) {
        const shmb_tensor *t = &tensors[i];
        shmb_field_place(&fields[i], t->dims, place.end, &place);
        at = pad(at, to + place.offsets);
        if (t->offsets) at = flatbuffers_put(at, t->offsets, list_bytes(t));
        at = flatbuffers_put(pad(at, to + place.values), t->data, place.end - place.values);
    }
}

/* The frame's bytes and where its body begins; false when they cannot be counted. */
static bool flatbuffers_measure(const shmb_tensor *tensors, const struct field *fields, uint32_t n,
                                size_t header, size_t *body, size_t *size) {
    struct extent place = {0};
    *body = FRONT + header;
    if (!header || !round_up(body, 8)) return false;
    for (uint32_t i = 0; i < n; i++) {
        *body += field_dims(&fields[i]) * sizeof(int64_t);
        if (!shmb_field_place(&fields[i], tensors[i].dims, place.end, &place)) return false;
    }
    return round_up(body, ALIGNMENT) && !__builtin_add_overflow(*body, place.end, size);
}

static shmb_status flatbuffers_encode(void *context, shmb_side side, const shmb_tensor *tensors,
                                      int64_t count, shmb_dtype want, shmb_sink *bytes) {
    (void)context;
    uint32_t n = (uint32_t)count;
    struct field *fields = malloc((size_t)count * sizeof *fields + 1);
    if (!fields)
        return sink_fail(bytes, SHMB_NO_MEMORY, "no memory for the layout of %lld fields",
                         (long long)count);
    for (uint32_t i = 0; i < n; i++)
        fields[i] = (struct field){.name = tensors[i].name,
                                   .name_bytes = (uint32_t)strlen(tensors[i].name),
                                   .dtype = (uint8_t)tensors[i].dtype,
                                   .kind = (uint8_t)tensors[i].kind,
                                   .rank = (uint8_t)tensors[i].rank};
    size_t header = shmb_header_write(fields, n, NULL, 0), body, size;
    if (!flatbuffers_measure(tensors, fields, n, header, &body, &size))
        sink_fail(bytes, SHMB_TOO_LARGE, "%lld fields make a message that cannot be",
                  (long long)count);
    else {
        uint8_t *to = shmb_sink_bytes(bytes, size);
        if (to)
            write_frame(tensors, fields, n, side == SHMB_REQUEST ? want : SHMB_ANY, header, body,
                        to);
    }
    free(fields);
    return bytes->error->status;
}

/* ---- Decode ---- */

struct frame {
    const uint8_t *bytes, *dims;
    size_t size, body;
    struct layout *layout;
};

/* Field by field: moves *at on, and gives the field's dims. */
static bool next_field(const struct frame *frame, const struct field *f, const uint8_t **dims_at,
                       int64_t *dims, struct extent *place) {
    size_t bytes = field_dims(f) * sizeof *dims;
    memcpy(dims, *dims_at, bytes);
    *dims_at += bytes;
    return shmb_field_place(f, dims, place->end, place) && place->end <= frame->size - frame->body;
}

/* Are all sizes within the frame, which ends where the last field does? */
static shmb_status check_places(const struct frame *frame, struct error *e) {
    const uint8_t *dims_at = frame->dims;
    struct extent place = {0};
    int64_t dims[SHMB_MAX_RANK + 1];
    for (uint32_t i = 0; i < frame->layout->count; i++) {
        const struct field *f = &frame->layout->fields[i];
        if (!next_field(frame, f, &dims_at, dims, &place))
            return shmb_fail(e, SHMB_CORRUPT,
                             "\"%.100s\": expected sizes of 0 or more that fit the frame's %zu "
                             "bytes, found others",
                             f->name, frame->size);
    }
    if (frame->body + place.end == frame->size) return SHMB_OK;
    return shmb_fail(e, SHMB_CORRUPT, "expected a frame of %zu bytes, found %zu",
                     frame->body + place.end, frame->size);
}

static void flatbuffers_add_fields(const struct frame *frame, shmb_sink *message) {
    const uint8_t *dims_at = frame->dims, *body = frame->bytes + frame->body;
    struct extent place = {0};
    int64_t dims[SHMB_MAX_RANK + 1], *offsets;
    for (uint32_t i = 0; i < frame->layout->count; i++) {
        const struct field *f = &frame->layout->fields[i];
        next_field(frame, f, &dims_at, dims, &place);
        void *to = shmb_sink_field(message, f->name, (shmb_dtype)f->dtype, (shmb_kind)f->kind,
                                   f->rank, dims, &offsets);
        if (!to || message->error->status) return;
        if (kind_is_list(f->kind)) {
            memcpy(offsets, body + place.offsets, ((size_t)dims[0] + 1) * sizeof *offsets);
            if (!shmb_offsets_valid(offsets, dims[0], dims[1])) {
                sink_fail(
                    message, SHMB_CORRUPT,
                    "\"%.100s\": expected non-decreasing offsets from 0 to %lld, found others",
                    f->name, (long long)dims[1]);
                return;
            }
        }
        if (place.end > place.values) memcpy(to, body + place.values, place.end - place.values);
    }
}

/* The front and the header, which is copied since its reader wants it aligned. */
static shmb_status read_layout(struct frame *frame, uint32_t want, uint32_t header,
                               struct error *e) {
    const char *why = shmb_out_of_memory;
    uint8_t *copy = malloc(header + (size_t)1);
    if (copy)
        frame->layout = shmb_header_read(memcpy(copy, frame->bytes + FRONT, header), header, &why);
    free(copy);
    if (!frame->layout)
        return shmb_fail(e, why == shmb_out_of_memory ? SHMB_NO_MEMORY : SHMB_CORRUPT,
                         "the frame's header: %s", why);
    size_t at = FRONT + (size_t)header;
    round_up(&at, 8);
    frame->dims = frame->bytes + at;
    frame->body = at + frame->layout->dims * sizeof(int64_t);
    round_up(&frame->body, ALIGNMENT);
    if (frame->body > frame->size)
        return shmb_fail(e, SHMB_CORRUPT,
                         "expected %u dims up to byte %zu of the frame, found its end at %zu",
                         frame->layout->dims, frame->body, frame->size);
    if (!want_exists(want))
        return shmb_fail(e, SHMB_CORRUPT, "expected a dtype wanted of 0 to %d, found %u",
                         LAST_DTYPE, want);
    return check_places(frame, e);
}

static shmb_status flatbuffers_decode(void *context, shmb_side side, const void *bytes, size_t size,
                                      shmb_dtype want, shmb_sink *message) {
    (void)context;
    uint32_t front[2];
    struct frame frame = {.bytes = bytes, .size = size};
    if (size >= FRONT) memcpy(front, bytes, FRONT);
    if (size < FRONT || front[1] > size - FRONT)
        return sink_fail(message, SHMB_CORRUPT,
                         "expected %d bytes and a header, found a frame of %zu bytes: does the "
                         "other side use serdes=flatbuffers?",
                         FRONT, size);
    if (read_layout(&frame, front[0], front[1], message->error) == SHMB_OK) {
        const struct field *f = frame.layout->fields;
        if (side == SHMB_ADVICE && want && (frame.layout->count != 1 || f->dtype != want))
            sink_fail(message, SHMB_MISMATCH,
                      "expected one field of dtype %s, found %u, the first of dtype %s",
                      shmb_dtype_name(want), frame.layout->count,
                      frame.layout->count ? shmb_dtype_name((shmb_dtype)f->dtype) : "none");
        else flatbuffers_add_fields(&frame, message);
    }
    free(frame.layout);
    if (side == SHMB_REQUEST && !message->error->status)
        shmb_sink_want(message, (shmb_dtype)front[0]);
    return message->error->status;
}

const shmb_serdes shmb_serdes_flatbuffers = {.size = sizeof(shmb_serdes),
                                             .name = "flatbuffers",
                                             .encode = flatbuffers_encode,
                                             .decode = flatbuffers_decode};
