#include "base/bytes.h"

#include <stdlib.h>

void *shmb_bytes_add(struct bytes *b, size_t more) {
    size_t needed;
    if (__builtin_add_overflow(b->size, more, &needed) || needed > PTRDIFF_MAX / 2) return NULL;
    if (needed > b->room || !b->data) { /* also for no bytes: NULL says that there is no memory */
        size_t room = needed < 4096 ? 4096 : needed + needed / 2;
        uint8_t *data = realloc(b->data, room);
        if (!data) return NULL;
        b->data = data;
        b->room = room;
    }
    void *at = b->data + b->size;
    b->size = needed;
    return at;
}

void shmb_bytes_free(struct bytes *b) {
    free(b->data);
    *b = (struct bytes){0};
}
