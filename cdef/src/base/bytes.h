/* Bytes that grow. */
#ifndef SHMB_BYTES_H
#define SHMB_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t size, room;
};

/* Room for `more` bytes behind the others, which may move; NULL when there is no memory. */
void *shmb_bytes_add(struct bytes *b, size_t more);
void shmb_bytes_free(struct bytes *b);

#endif
