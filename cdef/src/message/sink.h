/* Where a SerDes or a plug-in puts what it makes: a message's fields, or bytes. */
#ifndef SHMB_SINK_H
#define SHMB_SINK_H

#include "base/bytes.h"
#include "message/builder.h"
#include "shmbridge/plugin.h"

struct shmb_sink {
    struct builder *message; /* NULL where fields have no place */
    struct bytes *bytes;     /* NULL where bytes have none */
    shmb_dtype want;
    bool typed; /* of a request: who asks understands replies that tell their dtype (frame_typed) */
    struct error *error;    /* of the call; the same as the message's, where there is one */
    _Atomic int *interrupt; /* set by shmb_interrupt; NULL where nothing waits */
    bool interrupted;       /* it was, and has been seen */
    int64_t *deadline;      /* of a runner that is opened, ns; else NULL */
};

/* What a plug-in's call comes to: its sink's error, or the status that it returned without saying
 * why. kind: as "the SerDes". */
shmb_status shmb_sink_result(shmb_status returned, struct error *e, const char *kind,
                             const char *name);
/* Sets status and text, once: the first failure stays. */
#define sink_fail(sink, code, ...)                                                                 \
    ((sink)->error->status ? (sink)->error->status : shmb_fail((sink)->error, (code), __VA_ARGS__))

#endif
