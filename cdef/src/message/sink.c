#include "message/sink.h"

#include "base/clock.h"
#include "base/order.h"

void *shmb_sink_bytes(shmb_sink *sink, size_t bytes) {
    void *at = sink->bytes ? shmb_bytes_add(sink->bytes, bytes) : NULL;
    if (!sink->bytes) sink_fail(sink, SHMB_INVALID, "this sink takes fields, not bytes");
    else if (!at) sink_fail(sink, SHMB_NO_MEMORY, "no memory for a message's bytes");
    return at;
}

void *shmb_sink_field(shmb_sink *sink, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets) {
    if (sink->message)
        return shmb_builder_add(sink->message, name, dtype, kind, rank, dims, offsets);
    sink_fail(sink, SHMB_INVALID, "this sink takes bytes, not fields");
    return NULL;
}

void shmb_sink_want(shmb_sink *sink, shmb_dtype dtype) { sink->want = dtype; }

/* A plug-in may return anything, and a negative status would mean that there is no answer yet. */
static shmb_status failure(shmb_status status) {
    return (unsigned)status - 1 < SHMB_NO_MEMORY ? status : SHMB_INVALID;
}

shmb_status shmb_sink_fail(shmb_sink *sink, shmb_status status, const char *text) {
    return sink_fail(sink, failure(status), "%s", text);
}

void shmb_sink_deadline(shmb_sink *sink, double seconds) {
    if (sink->deadline && seconds > 0) *sink->deadline = shmb_clock_span(seconds);
}

int32_t shmb_sink_interrupted(shmb_sink *sink) {
    if (sink->interrupt && load_relaxed(sink->interrupt) && atomic_exchange(sink->interrupt, 0))
        sink->interrupted = true;
    return sink->interrupted;
}

shmb_status shmb_sink_result(shmb_status returned, struct error *e, const char *kind,
                             const char *name) {
    if (e->status || !returned) return e->status;
    return shmb_fail(e, failure(returned), "%s \"%.100s\" failed without saying why", kind, name);
}
