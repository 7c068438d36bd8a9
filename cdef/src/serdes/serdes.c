#include "serdes/serdes.h"

#include <string.h>

#include "base/order.h"
#include "base/registry.h"
#include "serdes/codec.h"

static struct registry known = {
    .adding = PTHREAD_MUTEX_INITIALIZER,
    .count = 3,
    .entries = {{"bitstream", &shmb_serdes_bitstream},
                {"json", &shmb_serdes_json},
                {"flatbuffers", &shmb_serdes_flatbuffers}},
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
