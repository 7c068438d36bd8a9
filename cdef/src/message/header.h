/* The header codec: a layout as FlatBuffers bytes (schemas/message.fbs), written, verified and read
 * without a library. Format: https://flatbuffers.dev/internals */
#ifndef SHMB_HEADER_H
#define SHMB_HEADER_H

#include "message/message.h"

/* Writes the header of `count` fields into out[capacity] (8-byte aligned), if it fits. Returns its
 * size; 0 when it cannot be expressed (over 2 GiB). */
size_t shmb_header_write(const struct field *fields, uint32_t count, uint8_t *out, size_t capacity);

/* Verifies bytes[size] (8-byte aligned, private memory: nobody else may change it meanwhile) and
 * reads them into a new layout, which the caller frees (free). Returns NULL and sets
 * *why (static text) when they are not a valid header: not verified by FlatBuffers' rules, an
 * unknown dtype or kind, a rank that cannot be, an empty name or one that holds a zero byte or is
 * not UTF-8, or a name that comes twice; or shmb_out_of_memory. */
struct layout *shmb_header_read(const uint8_t *bytes, size_t size, const char **why);

#endif
