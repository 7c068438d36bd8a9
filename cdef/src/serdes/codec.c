#include <stdlib.h>

#include "base/memory.h"
#include "message/dtype.h"
#include "serdes/codec.h"
#include "serdes/serdes.h"

struct shmb_codec {
    const shmb_serdes *serdes;
    struct memory memory;
    struct builder message;
    struct bytes bytes;
    struct error error;
};

shmb_codec *shmb_codec_new(const char *serdes) {
    shmb_codec *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->serdes = shmb_serdes_find(serdes);
    c->message.error = &c->error;
    if (c->serdes && shmb_memory_reserve(&c->memory)) {
        shmb_codec_clear(c);
        return c;
    }
    free(c);
    return NULL;
}

void shmb_codec_free(shmb_codec *c) {
    shmb_builder_free(&c->message);
    shmb_bytes_free(&c->bytes);
    shmb_memory_release(&c->memory);
    free(c);
}

void shmb_codec_clear(shmb_codec *c) {
    c->error.status = SHMB_OK;
    shmb_memory_trim(&c->memory, c->message.used);
    shmb_builder_start(&c->message, c->memory.base, c->memory.room, NULL);
}

void *shmb_codec_add(shmb_codec *c, const char *name, shmb_dtype dtype, shmb_kind kind,
                     int32_t rank, const int64_t *dims, int64_t **offsets) {
    return shmb_builder_add(&c->message, name, dtype, kind, rank, dims, offsets);
}

shmb_status shmb_codec_encode(shmb_codec *c, shmb_side side, shmb_dtype want, const void **bytes,
                              size_t *size) {
    const shmb_tensor *fields = shmb_builder_tensors(&c->message);
    c->bytes.size = 0;
    if (!fields) return shmb_fail(&c->error, SHMB_NO_MEMORY, "no memory for a message");
    shmb_status status = c->error.status
                             ? c->error.status
                             : shmb_serdes_encode(c->serdes, side, fields, c->message.count, want,
                                                  false, &c->bytes, &c->error);
    *bytes = c->bytes.data;
    *size = c->bytes.size;
    return status;
}

shmb_status shmb_codec_decode(shmb_codec *c, shmb_side side, const void *bytes, size_t size,
                              shmb_dtype *want) {
    shmb_codec_clear(c);
    if (shmb_serdes_decode(c->serdes, side, bytes, size, want, NULL, &c->message, &c->error))
        return c->error.status;
    return shmb_builder_tensors(&c->message)
               ? SHMB_OK
               : shmb_fail(&c->error, SHMB_NO_MEMORY, "no memory for a message");
}

const shmb_tensor *shmb_codec_fields(const shmb_codec *c, int64_t *count) {
    *count = c->message.count;
    return c->message.tensors;
}

const char *shmb_codec_error(const shmb_codec *c) { return c->error.message; }

const char *shmb_llvm_type(shmb_dtype dtype) {
    return (unsigned)dtype < DTYPES ? shmb_dtypes[dtype].llvm : NULL;
}
