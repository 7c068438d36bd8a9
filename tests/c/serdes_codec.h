/* What the tests of SerDes share: a codec that is filled, encoded, decoded and compared. */
#ifndef SERDES_CODEC_H
#define SERDES_CODEC_H

#include <math.h>

#include "bridge.h"
#include "message/message.h"
#include "serdes/codec.h"

#define CHECK_CODEC(c, call, expected)                                                             \
    CHECK_GAVE(call, expected, status_ ? shmb_codec_error(c) : "")

static inline shmb_codec *codec_new(const char *serdes) {
    shmb_codec *c = shmb_codec_new(serdes);
    CHECK(c);
    return c;
}

/* Adds a tensor with these elements. */
static inline void codec_put(shmb_codec *c, const char *name, shmb_dtype dtype, int32_t rank,
                             const int64_t *dims, const void *data) {
    size_t bytes = shmb_dtype_size(dtype);
    for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
    void *to = shmb_codec_add(c, name, dtype, SHMB_TENSOR, rank, dims, NULL);
    CHECK(to);
    if (bytes) memcpy(to, data, bytes);
}

/* Adds a string, or with count >= 0 a list of strings. */
static inline void codec_put_texts(shmb_codec *c, const char *name, int count,
                                   const char *const *texts) {
    int64_t bytes = 0, *offsets = NULL, n = count < 0 ? 1 : count;
    for (int64_t i = 0; i < n; i++) bytes += (int64_t)strlen(texts[i]);
    char *to = shmb_codec_add(c, name, SHMB_UINT8, count < 0 ? SHMB_STRING : SHMB_STRINGS, 1,
                              count < 0 ? &bytes : (int64_t[]){count, bytes}, &offsets);
    CHECK(to);
    bytes = 0;
    if (count >= 0) offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + bytes, texts[i], strlen(texts[i]));
        bytes += (int64_t)strlen(texts[i]);
        if (count >= 0) offsets[i + 1] = bytes;
    }
}

/* What the message encodes to is exactly this. */
static inline void expect_bytes(shmb_codec *c, shmb_side side, const void *expected, size_t size) {
    const void *bytes;
    size_t found;
    CHECK_CODEC(c, shmb_codec_encode(c, side, SHMB_ANY, &bytes, &found), SHMB_OK);
    if (found == size && memcmp(bytes, expected, size) == 0) return;
    fprintf(stderr, "expected %zu bytes: %.*s\nfound %zu: %.*s\n", size, (int)size,
            (const char *)expected, found, (int)found, (const char *)bytes);
    exit(1);
}

/* Decodes private bytes of exactly that size, so that a sanitizer sees what is read beyond them. */
static inline shmb_status codec_decode(shmb_codec *c, shmb_side side, const void *bytes,
                                       size_t size, shmb_dtype want) {
    uint8_t *copy = malloc(size + !size);
    CHECK(copy);
    memcpy(copy, bytes, size);
    shmb_status status = shmb_codec_decode(c, side, copy, size, &want);
    free(copy);
    if (status) CHECK(shmb_codec_error(c)[0]);
    return status;
}

static inline const shmb_tensor *codec_field(const shmb_codec *c, int64_t index) {
    int64_t count;
    const shmb_tensor *fields = shmb_codec_fields(c, &count);
    CHECK(index < count);
    return &fields[index];
}

#endif
