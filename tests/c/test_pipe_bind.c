/* Bound features and interrupts through pipes are as through shared memory. */
#include "pipes.h"

int main(void) {
    struct compilers s;
    compilers_open(&s, "pipe-bind");
    shmb_runner *r = pipes_connect(&s.pipes);
    uint8_t *x = shmb_bind(r, "x", SHMB_UINT8, 1, &(int64_t){3});
    CHECK((uintptr_t)x % 64 == 0);
    for (int i = 0; i < 5; i++) {
        memcpy(x, (char[]){'a', 'b', (char)('0' + i)}, 3);
        CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
        CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
        pipes_expect(r, (char[]){'a', 'b', (char)('0' + i), '!', 0});
        CHECK(shmb_bind(r, "x", SHMB_UINT8, 1, &(int64_t){3}) == x);
    }
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
    shmb_interrupt(r);
    CHECK_STATUS(r, pipes_result(r), SHMB_INTERRUPTED);
    memcpy(x, "new", 3);
    CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK); /* waits for the reply that is owed */
    CHECK(shmb_runner_continue(r) == -1);
    compilers_answer(&s, compilers_receive(&s, PATIENCE_MS));
    CHECK(shmb_runner_continue(r) == -1);
    CHECK_STATUS(r, compilers_turn(&s, r), SHMB_OK);
    pipes_expect(r, "new!");
    shmb_close(r);
    compilers_close(&s);
    return 0;
}
