/* ML-Compiler-Bridge's protocol, the host's side: one frame is one question, one frame its answer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "pipe/frame.h"
#include "runner/default.h"
#include "serdes/serdes.h"

static const uint64_t longest_skipped = (uint64_t)1 << 48; /* more is no length at all */

struct frames {
    struct counted counted; /* first */
    const shmb_serdes *serdes;
    size_t limit;
    struct default_advice *fallback; /* what answers instead of a failure; NULL: none */
    char where[160];                 /* the URL, for what is said of that */
    shmb_dtype fallback_as;          /* its dtype where the compiler wants none */
    shmb_dtype want;                 /* of the question */
    uint64_t skip;                   /* bytes of a frame that is too long */
};

void *shmb_frames_new(const shmb_serdes *serdes, size_t limit) {
    struct frames *f = calloc(1, sizeof *f);
    if (f) *f = (struct frames){.serdes = serdes, .limit = limit};
    return f;
}

/* What is too long to keep is read all the same, so that the compiler reads the answer. */
static int frames_skip(struct frames *f, size_t size, size_t *used, shmb_runner *r) {
    *used = size < f->skip ? size : (size_t)f->skip;
    f->skip -= *used;
    if (f->skip) return MORE;
    if (r) {
        shmb_runner_begin(r);
        if (!r->stuck.status)
            shmb_fail(&r->stuck, SHMB_TOO_LARGE,
                      "the request is a frame of more than %zu bytes: send less, or give the host "
                      "more room (Host(request_bytes=...))",
                      f->limit);
    }
    return ASK;
}

static int frames_feed(void *state, const uint8_t *bytes, size_t size, size_t *used, shmb_runner *r,
                       shmb_dtype *want, struct error *e) {
    struct frames *f = state;
    *used = 0;
    *want = f->want = SHMB_ANY;
    if (f->skip) return frames_skip(f, size, used, r);
    if (size < FRAME_HEAD) return MORE;
    uint64_t length = frame_length(bytes);
    if (length > longest_skipped)
        return (int)shmb_fail(e, SHMB_CORRUPT,
                              "expected a frame's length of at most %zu bytes, found %llu: the "
                              "compiler speaks another protocol",
                              f->limit, (unsigned long long)length);
    if (length > f->limit) {
        *used = FRAME_HEAD;
        f->skip = length;
        return MORE;
    }
    if (size - FRAME_HEAD < length) return MORE;
    *used = FRAME_HEAD + (size_t)length;
    if (!r) return ASK;
    shmb_runner_begin(r);
    if (!r->stuck.status)
        shmb_serdes_decode(f->serdes, SHMB_REQUEST, bytes + FRAME_HEAD, (size_t)length, want,
                           &f->counted.info.typed, &r->builder, &r->stuck);
    f->want = *want;
    return ASK;
}

static shmb_status encode_failure(struct bytes *out, shmb_status status, const char *text) {
    size_t at, bytes = strlen(text);
    uint8_t *to = frame_begin(out, &at) ? shmb_bytes_add(out, 1 + bytes) : NULL;
    if (!to) return SHMB_NO_MEMORY;
    *to = (uint8_t)status;
    memcpy(to + 1, text, bytes);
    frame_end(out, at, frame_failed);
    return SHMB_OK;
}

static shmb_status encode_fields(const struct frames *f, const shmb_tensor *fields, int64_t count,
                                 struct bytes *out, struct error *e) {
    const shmb_serdes *serdes = f->counted.info.typed ? &shmb_serdes_flatbuffers : f->serdes;
    size_t at = out->size;
    if (!frame_begin(out, &at)) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a reply");
    if (!shmb_serdes_encode(serdes, SHMB_ADVICE, fields, count, SHMB_ANY, false, out, e))
        frame_end(out, at, f->counted.info.typed ? frame_typed : 0);
    else out->size = at;
    return e->status;
}

static shmb_status encode_advice(const struct frames *f, shmb_runner *r, struct bytes *out,
                                 struct error *e) {
    int64_t count = shmb_advice_count(r);
    shmb_tensor *fields = calloc((size_t)count + 1, sizeof *fields);
    if (!fields) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a reply");
    for (int64_t i = 0; i < count; i++) shmb_advice_at(r, i, &fields[i]);
    encode_fields(f, fields, count, out, e);
    free(fields);
    return e->status;
}

/* false: there is none, or none that the compiler could have. */
static bool encode_fallback(struct frames *f, struct bytes *out, const struct error *why) {
    struct error e = {0};
    shmb_dtype want = f->want ? f->want : f->fallback_as;
    const shmb_tensor *advice = f->fallback ? shmb_default_as(f->fallback, want) : NULL;
    if (!advice || encode_fields(f, advice, 1, out, &e)) return false;
    if (!f->counted.info.defaulted++)
        shmb_default_say(f->fallback, f->where, why->message, NULL, NULL);
    return true;
}

static shmb_status frames_answer(void *state, shmb_runner *r, shmb_status status,
                                 struct bytes *out) {
    struct frames *f = state;
    struct error e = {0};
    f->counted.info.asked++;
    if (status)
        shmb_fail(&e, status, "%s", r ? shmb_error_message(r) : "the host currently has no model");
    else encode_advice(f, r, out, &e);
    if (e.status && !f->counted.first.status) f->counted.first = e;
    if (!e.status || encode_fallback(f, out, &e)) return SHMB_OK;
    return encode_failure(out, e.status, e.message);
}

shmb_status shmb_frames_set_default(void *state, const char *text, shmb_dtype as, const char *path,
                                    struct error *e) {
    struct frames *f = state;
    snprintf(f->where, sizeof f->where, "pipe://%s", path);
    f->fallback_as = as;
    if (shmb_default_open(&f->fallback, text, e) || shmb_default_as(f->fallback, as))
        return e->status;
    return shmb_fail(
        e, SHMB_INEXACT,
        "default_advice=%.60s is not exactly representable as %s: choose one that is, or "
        "another dtype to the advice",
        text, shmb_dtype_name(as));
}

static void frames_end(void *state) {
    struct frames *f = state;
    f->counted.info.typed = false;
    f->skip = 0;
}

static void frames_free(void *state) {
    struct frames *f = state;
    free(f->fallback);
    free(f);
}

const struct protocol shmb_frames_protocol = {
    .feed = frames_feed, .answer = frames_answer, .end = frames_end, .free = frames_free};
