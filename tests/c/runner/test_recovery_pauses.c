/* The pauses between retries: twice as long each time, up to 16 times the first, less a random part
 * of up to half. */
#include "bridge.h"
#include "runner/recovery.h"

int main(void) {
    static const int64_t full[] = {1, 2, 4, 8, 16, 16, 16};
    for (int attempt = 0; attempt < 7; attempt++) {
        int64_t most = full[attempt] * 1000, last = most + 1;
        CHECK(shmb_recovery_pause(1000, attempt, 0) == most);
        CHECK(shmb_recovery_pause(1000, attempt, 1u << 31) == most - most / 4);
        for (uint64_t random = 0; random <= UINT32_MAX; random += 1 << 20) {
            int64_t pause = shmb_recovery_pause(1000, attempt, (uint32_t)random);
            CHECK(pause <= last && pause >= most / 2 && pause <= most);
            last = pause;
        }
    }
    /* the longest there is */
    CHECK(shmb_recovery_pause(1000000000000000, 1000000, UINT32_MAX) >= 8000000000000000);
    return 0;
}
