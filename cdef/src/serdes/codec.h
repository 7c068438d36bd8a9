/* A SerDes on its own, for Python and the tests: a message filled field by field becomes bytes, and
 * bytes a message. */
#ifndef SHMB_CODEC_H
#define SHMB_CODEC_H

#include <stdbool.h>

#include "shmbridge/plugin.h"

/* NULL: none of that name, or no memory. One thread at a time. */
typedef struct shmb_codec shmb_codec;
shmb_codec *shmb_codec_new(const char *serdes);
void shmb_codec_free(shmb_codec *c);
void shmb_codec_clear(shmb_codec *c); /* begins a message */
void *shmb_codec_add(shmb_codec *c, const char *name, shmb_dtype dtype, shmb_kind kind,
                     int32_t rank, const int64_t *dims,
                     int64_t **offsets); /* as shmb_sink_field; its error sticks until encode */
/* until the next call */
shmb_status shmb_codec_encode(shmb_codec *c, shmb_side side, shmb_dtype want, const void **bytes,
                              size_t *size);
shmb_status shmb_codec_decode(shmb_codec *c, shmb_side side, const void *bytes, size_t size,
                              shmb_dtype *want);
/* of what was decoded, until the next call */
const shmb_tensor *shmb_codec_fields(const shmb_codec *c, int64_t *count);
const char *shmb_codec_error(const shmb_codec *c);
bool shmb_serdes_known(const char *name); /* built in or registered */
/* "int64_t", "float", ... of a training log; NULL: LLVM has none */
const char *shmb_llvm_type(shmb_dtype dtype);

#endif
