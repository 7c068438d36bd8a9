/* A frame may be as long as the limit; a longer one is read away, but not into the next
 * compiler's. */
#include "pipes.h"

enum { LIMIT = 16 };

static int feed(void *state, uint64_t length, size_t there, size_t *used) {
    struct {
        uint64_t length;
        char bytes[64];
    } frame = {.length = length};
    struct error e = {0};
    shmb_dtype want;
    return shmb_frames_protocol.feed(state, (const uint8_t *)&frame, FRAME_HEAD + there, used, NULL,
                                     &want, &e);
}

int main(void) {
    size_t used;
    void *state = shmb_frames_new(&raw_serdes, LIMIT);
    CHECK(state);
    CHECK(feed(state, LIMIT, LIMIT, &used) == ASK && used == FRAME_HEAD + LIMIT);
    CHECK(feed(state, LIMIT + 1, 2, &used) == MORE && used == FRAME_HEAD);
    shmb_frames_protocol.end(state); /* its compiler died */
    CHECK(feed(state, 4, 4, &used) == ASK && used == FRAME_HEAD + 4);
    shmb_frames_protocol.free(state);
}
