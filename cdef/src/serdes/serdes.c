#include "serdes/serdes.h"

#include <string.h>

#include "base/order.h"
#include "base/registry.h"
#include "serdes/codec.h"

static struct registry known = {
    .adding = PTHREAD_MUTEX_INITIALIZER,
    .count = 4,
    .entries = {{"bitstream", &shmb_serdes_bitstream},
                {"json", &shmb_serdes_json},
                {"flatbuffers", &shmb_serdes_flatbuffers},
                {"bytes", &shmb_serdes_bytes}},
};

const shmb_serdes *shmb_serdes_find(const char *name) { return shmb_registry_find(&known, name); }

const shmb_serdes *shmb_serdes_choose(const char *name, struct error *e) {
    char names[256] = "";
    const shmb_serdes *found = shmb_serdes_find(name);
    if (found) return found;
    for (int i = 0, n = load_acquire(&known.count); i < n; i++)
        shmb_list_name(names, sizeof names, known.entries[i].name);
    shmb_fail(e, SHMB_INVALID, "serdes=%.60s: expected one of %s", name, names);
    return NULL;
}

bool shmb_serdes_known(const char *name) { return shmb_serdes_find(name); }

shmb_status shmb_register_serdes(const shmb_serdes *s) {
    if (!s || s->size != sizeof *s || !s->name || !*s->name || !s->encode || !s->decode)
        return SHMB_INVALID;
    return shmb_registry_add(&known, s->name, s);
}

shmb_status shmb_serdes_encode(const shmb_serdes *s, shmb_side side, const shmb_tensor *fields,
                               int64_t fields_count, shmb_dtype want, bool typed, struct bytes *out,
                               struct error *e) {
    shmb_sink sink = {.bytes = out, .typed = typed, .error = e};
    e->status = SHMB_OK;
    return shmb_sink_result(s->encode(s->context, side, fields, fields_count, want, &sink), e,
                            "the SerDes", s->name);
}

shmb_status shmb_serdes_decode(const shmb_serdes *s, shmb_side side, const void *bytes, size_t size,
                               shmb_dtype *want, bool *typed, struct builder *message,
                               struct error *e) {
    shmb_sink sink = {.message = message, .error = e, .want = want ? *want : SHMB_ANY};
    shmb_status status = s->decode(s->context, side, bytes, size, sink.want, &sink);
    if (want) *want = sink.want;
    if (typed) *typed = sink.typed;
    return shmb_sink_result(status, e, "the SerDes", s->name);
}

/* ---- bytes: the frame is the caller's own, one uint8 vector ---- */

static shmb_status bytes_encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t n,
                                shmb_dtype want, shmb_sink *bytes) {
    (void)context, (void)side, (void)want;
    const char *dtype = n ? shmb_dtype_name(fields->dtype) : "none";
    int rank = n ? fields->rank : 0;
    if (n != 1 || fields->kind != SHMB_TENSOR || fields->dtype != SHMB_UINT8 || rank != 1)
        return sink_fail(bytes, SHMB_MISMATCH,
                         "serdes=bytes sends one uint8 vector as it is; found %lld fields, the "
                         "first of dtype %s and rank %d",
                         (long long)n, dtype, rank);
    void *to = shmb_sink_bytes(bytes, (size_t)fields->size);
    if (to && fields->size) memcpy(to, fields->data, (size_t)fields->size);
    return bytes->error->status;
}

static shmb_status bytes_decode(void *context, shmb_side side, const void *bytes, size_t size,
                                shmb_dtype want, shmb_sink *message) {
    (void)context;
    if (want != SHMB_ANY && want != SHMB_UINT8)
        return sink_fail(message, SHMB_MISMATCH, "serdes=bytes gives uint8, expected %s",
                         shmb_dtype_name(want));
    void *to = shmb_sink_field(message, side == SHMB_REQUEST ? "frame" : "advice", SHMB_UINT8,
                               SHMB_TENSOR, 1, &(int64_t){(int64_t)size}, NULL);
    if (to && size && !message->error->status) memcpy(to, bytes, size);
    return message->error->status;
}

const shmb_serdes shmb_serdes_bytes = {
    .size = sizeof(shmb_serdes), .name = "bytes", .encode = bytes_encode, .decode = bytes_decode};
