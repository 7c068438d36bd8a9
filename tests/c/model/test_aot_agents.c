/* Several models behind one runner: a question that no agent takes leaves nothing behind for the
 * next one of the same layout. */
#include <assert.h>
#include <string.h>

#include "shmbridge.h"

#define MODULE MODULES "/module_aot.so"

/* x lies behind other features, as many as there are dims in front of it. */
static shmb_status ask(shmb_runner *r, const char *agent, int before, int64_t n) {
    shmb_tensor t;
    shmb_set_string(r, "agent", agent, -1);
    for (int i = 0; i < before; i++)
        shmb_set(r, i ? "second" : "first", SHMB_FLOAT32, 0, NULL, &(float){1000});
    float *x = shmb_feature_f32(r, "x", n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] = (float)(i + 1);
    shmb_status status = shmb_evaluate(r);
    if (status) return status;
    assert(shmb_advice(r, "sum", &t) == SHMB_OK && *(const float *)t.data == sum);
    assert(shmb_advice(r, "doubled", &t) == SHMB_OK && t.size == n &&
           ((const float *)t.data)[n - 1] == 2 * (float)n);
    return SHMB_OK;
}

int main(void) {
    shmb_runner *r;
    assert(shmb_open("aot://?agent.one=" MODULE "&agent.two=" MODULE, NULL, &r) == SHMB_OK);
    shmb_port p;
    assert(shmb_expected_count(r, NULL) == -1 && shmb_expected_count(r, "two") == 1 &&
           shmb_expected_count(r, "three") == -1);
    assert(shmb_expected_at(r, "two", 0, &p) == SHMB_OK && strcmp(p.name, "x") == 0);
    assert(shmb_expected_at(r, "three", 0, &p) == SHMB_INVALID &&
           strstr(shmb_error_message(r), "agent three"));
    for (int round = 0; round < 3; round++) {
        for (int before = 2; before >= 0; before--) {
            assert(ask(r, "one", before, 3) == SHMB_OK && ask(r, "two", before, 3) == SHMB_OK);
            int other = (before + 1) % 3;
            assert(ask(r, "who", other, 3) == SHMB_MISMATCH &&
                   strstr(shmb_error_message(r), "one, two"));
            assert(ask(r, "one", other, 3) == SHMB_OK); /* found at other places */
            assert(ask(r, "who", other, 30) == SHMB_MISMATCH);
            /* of other sizes */
            assert(ask(r, "one", other, 30) == SHMB_OK && ask(r, "two", other, 30) == SHMB_OK);
        }
    }
    shmb_close(r);
}
