/* ML-Compiler-Bridge's protocol, the host's side: one frame is one question, one frame its answer. */
#include <stdlib.h>

#include "frame.h"
#include "host.h"
#include "protocol.h"
#include "serdes.h"

static const uint64_t longest_skipped = (uint64_t)1 << 48; /* more is no length at all */

struct frames {
    const shmb_serdes *serdes;
    size_t limit;
    bool talking;
    uint64_t skip; /* bytes of a frame that is too long */
    struct shmb_line_info counted;
    struct error first; /* failure */
};

void *frames_new(const shmb_serdes *serdes, size_t limit) {
    struct frames *f = calloc(1, sizeof *f);
    if (f) *f = (struct frames){.serdes = serdes, .limit = limit};
    return f;
}

/* What is too long to keep is read all the same, so that the compiler comes to reading the answer. */
static int skip(struct frames *f, size_t size, size_t *used, shmb_runner *r) {
    *used = size < f->skip ? size : (size_t)f->skip;
    f->skip -= *used;
    if (f->skip) return MORE;
    if (r) {
        runner_begin(r);
        if (!r->stuck.status)
            fail(
                &r->stuck, SHMB_TOO_LARGE,
                "the request is a frame of more than %zu bytes: send less, or give the host more room (Host(request_bytes=...))",
                f->limit);
    }
    return ASK;
}

static int frames_feed(void *state, const uint8_t *bytes, size_t size, size_t *used, shmb_runner *r,
                       shmb_dtype *want, struct error *e) {
    struct frames *f = state;
    f->counted.conversations += !f->talking;
    f->talking = true;
    *used = 0;
    *want = SHMB_ANY;
    if (f->skip) return skip(f, size, used, r);
    if (size < FRAME_HEAD) return MORE;
    uint64_t length = frame_length(bytes);
    if (length > longest_skipped)
        return (int)fail(
            e, SHMB_CORRUPT,
            "expected a frame's length of at most %zu bytes, found %llu: the compiler speaks another protocol",
            f->limit, (unsigned long long)length);
    if (length > f->limit) {
        *used = FRAME_HEAD;
        f->skip = length;
        return MORE;
    }
    if (size - FRAME_HEAD < length) return MORE;
    *used = FRAME_HEAD + (size_t)length;
    if (!r) return ASK;
    runner_begin(r);
    if (!r->stuck.status)
        serdes_decode(f->serdes, SHMB_REQUEST, bytes + FRAME_HEAD, (size_t)length, want,
                      &r->builder, &r->stuck);
    return ASK;
}

static shmb_status encode_failure(struct bytes *out, shmb_status status, const char *text) {
    size_t at, bytes = strlen(text);
    uint8_t *to = frame_begin(out, &at) ? bytes_add(out, 1 + bytes) : NULL;
    if (!to) return SHMB_NO_MEMORY;
    *to = (uint8_t)status;
    memcpy(to + 1, text, bytes);
    frame_end(out, at, frame_failed);
    return SHMB_OK;
}

static shmb_status encode_advice(const struct frames *f, shmb_runner *r, struct bytes *out,
                                 struct error *e) {
    int64_t count = shmb_advice_count(r);
    shmb_tensor *fields = calloc((size_t)count + 1, sizeof *fields);
    size_t at = out->size;
    for (int64_t i = 0; fields && i < count; i++) shmb_advice_at(r, i, &fields[i]);
    if (!fields || !frame_begin(out, &at)) fail(e, SHMB_NO_MEMORY, "no memory for a reply");
    else if (!serdes_encode(f->serdes, SHMB_ADVICE, fields, count, SHMB_ANY, out, e))
        frame_end(out, at, 0);
    if (e->status) out->size = at;
    free(fields);
    return e->status;
}

static shmb_status frames_answer(void *state, shmb_runner *r, shmb_status status,
                                 struct bytes *out) {
    struct frames *f = state;
    struct error e = {0};
    f->counted.asked++;
    if (status) fail(&e, status, "%s", r ? shmb_error_message(r) : "the host has no model now");
    else encode_advice(f, r, out, &e);
    if (e.status && !f->first.status) f->first = e;
    return e.status ? encode_failure(out, e.status, e.message) : SHMB_OK;
}

static bool frames_end(void *state) {
    struct frames *f = state;
    bool whole = !f->skip;
    f->talking = false;
    f->skip = 0;
    return whole;
}

static void frames_info(const void *state, shmb_line_info *out) {
    const struct frames *f = state;
    out->conversations += f->counted.conversations;
    out->asked += f->counted.asked;
    if (f->first.status && !out->status) {
        out->status = f->first.status;
        out->why = f->first.message;
    }
}

const struct protocol frames_protocol = {.feed = frames_feed,
                                         .answer = frames_answer,
                                         .end = frames_end,
                                         .info = frames_info,
                                         .free = free};
