#include "serdes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "host.h"
#include "ring.h"

enum { MOST = 256 };
static const shmb_serdes *known[MOST] = {&serdes_bitstream, &serdes_json, &serdes_flatbuffers,
                                         &serdes_bytes};
static _Atomic int count = 4;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

const shmb_serdes *serdes_find(const char *name) {
    for (int i = 0, n = load_acquire(&count); i < n; i++)
        if (strcmp(known[i]->name, name) == 0) return known[i];
    return NULL;
}

void serdes_names(char *out, size_t room) {
    size_t used = 0;
    for (int i = 0, n = load_acquire(&count); i < n && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", i ? ", " : "", known[i]->name);
}

const shmb_serdes *serdes_choose(const char *name, struct error *e) {
    char names[256];
    const shmb_serdes *found = serdes_find(name);
    serdes_names(names, sizeof names);
    if (!found) fail(e, SHMB_INVALID, "serdes=%.60s: expected one of %s", name, names);
    return found;
}

bool shmb_serdes_known(const char *name) { return serdes_find(name); }

shmb_status shmb_register_serdes(const shmb_serdes *s) {
    if (!s || s->size != sizeof *s || !s->name || !*s->name || !s->encode || !s->decode)
        return SHMB_INVALID;
    pthread_mutex_lock(&adding);
    const shmb_serdes *same = serdes_find(s->name);
    int n = load_acquire(&count);
    shmb_status status = same        ? (same == s ? SHMB_OK : SHMB_IN_USE)
                         : n == MOST ? SHMB_NO_MEMORY
                                     : SHMB_OK;
    if (!same && !status) {
        known[n] = s;
        atomic_store(&count, n + 1);
    }
    pthread_mutex_unlock(&adding);
    return status;
}

shmb_status serdes_encode(const shmb_serdes *s, shmb_side side, const shmb_tensor *fields,
                          int64_t fields_count, shmb_dtype want, struct bytes *out,
                          struct error *e) {
    shmb_sink sink = {.bytes = out, .error = e};
    e->status = SHMB_OK;
    return sink_result(s->encode(s->context, side, fields, fields_count, want, &sink), e,
                       "the SerDes", s->name);
}

shmb_status serdes_decode(const shmb_serdes *s, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype *want, struct builder *message, struct error *e) {
    shmb_sink sink = {.message = message, .error = e, .want = want ? *want : SHMB_ANY};
    shmb_status status = s->decode(s->context, side, bytes, size, sink.want, &sink);
    if (want) *want = sink.want;
    return sink_result(status, e, "the SerDes", s->name);
}

/* ---- bytes: the frame is the caller's own, one uint8 vector ---- */

static shmb_status encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t n,
                          shmb_dtype want, shmb_sink *bytes) {
    (void)context, (void)side, (void)want;
    if (n != 1 || fields->kind != SHMB_TENSOR || fields->dtype != SHMB_UINT8 || fields->rank != 1)
        return sink_fail(
            bytes, SHMB_MISMATCH,
            "serdes=bytes sends one uint8 vector as it is; found %lld fields, the first of dtype %s and rank %d",
            (long long)n, n ? shmb_dtype_name(fields->dtype) : "none", n ? fields->rank : 0);
    void *to = shmb_sink_bytes(bytes, (size_t)fields->size);
    if (to && fields->size) memcpy(to, fields->data, (size_t)fields->size);
    return bytes->error->status;
}

static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size,
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

const shmb_serdes serdes_bytes = {
    .size = sizeof(shmb_serdes), .name = "bytes", .encode = encode, .decode = decode};
