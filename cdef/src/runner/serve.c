#include "runner/serve.h"

#include "runner/nonblocking.h"

enum { REQUESTS_PER_LOOK = 4096, MAX_FIELDS = 64 };

/* False where the runner has no advice that can go out as it is; then nothing was sent. */
static bool answer(shmb_host *h, shmb_runner *r, int64_t key) {
    shmb_tensor fields[MAX_FIELDS];
    const shmb_message *m = shmb_host_message(h, key);
    if (!m) return true; /* its runner has gone */
    for (int64_t i = 0; i < m->count; i++) shmb_runner_copy(r, &m->tensors[i]);
    if (shmb_evaluate_as(r, m->want)) return false;
    int64_t count = shmb_advice_count(r);
    if (count > MAX_FIELDS) return false;
    for (int64_t i = 0; i < count; i++)
        if (shmb_advice_at(r, i, &fields[i])) return false;
    if (count == 1) fields->name = "advice";
    shmb_host_reply(h, key, 0, fields, count); /* what does not fit is told to the runner */
    return true;
}

int64_t shmb_serve(shmb_host *h, shmb_runner *r, int64_t timeout_ns, int64_t *answered) {
    for (*answered = 0; *answered < REQUESTS_PER_LOOK; ++*answered) {
        int64_t key = shmb_host_receive(h, *answered ? 0 : timeout_ns);
        if (key < 0 || !answer(h, r, key)) return key;
    }
    return -(int64_t)SHMB_TIMEOUT;
}
