/* A kept slot stays unchanged until it is released; the last free slot is handed out as a copy, so
 * nobody starves. */
#include "bridge.h"

static struct bridge b;
static shmb_runner *r;

static int64_t ask(int64_t x) {
    int64_t key = bridge_ask_x(&b, r, x, SHMB_INT64);
    CHECK(*(const int64_t *)shmb_host_message(b.host, key)->tensors[0].data == x);
    return key;
}

static void reply(int64_t key, bool keep) {
    CHECK(reply_i64(b.host, key, keep, 1) == SHMB_OK);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
}

int main(void) {
    shmb_plan plan = small_plan;
    plan.slots = 4;
    bridge_open(&b, "kept", plan, SHMB_WAIT_DEFAULT);
    r = bridge_connect(&b, "");
    int64_t kept[3];
    const int64_t *views[3];
    for (int i = 0; i < 3; i++) {
        kept[i] = ask(100 + i);
        CHECK(!(kept[i] & SHMB_KEY_COPY));
        views[i] = shmb_host_message(b.host, kept[i])->tensors[0].data;
        reply(kept[i], true);
    }
    for (int i = 0; i < 10; i++) {
        int64_t key = ask(i);
        CHECK(key & SHMB_KEY_COPY);
        reply(key, i % 2); /* keeping a copy changes nothing */
        for (int k = 0; k < 3; k++) CHECK(*views[k] == 100 + k);
    }
    shmb_host_release(b.host, kept[1]);
    shmb_host_release(b.host, kept[1]); /* twice is harmless */
    int64_t key = ask(7);               /* the slot comes back with this reply */
    reply(key, false);
    for (int i = 0; i < 10; i++) {
        key = ask(i);
        reply(key, false);
        CHECK(*views[0] == 100 && *views[2] == 102);
    }
    CHECK(!(key & SHMB_KEY_COPY));
    shmb_close(r);
    r = bridge_connect(&b, ""); /* the next runner finds them held */
    for (int i = 0; i < 10; i++) {
        reply(ask(i), false);
        CHECK(*views[0] == 100 && *views[2] == 102);
    }
    shmb_host_release(b.host, kept[0]);
    shmb_host_release(b.host, kept[2]);
    for (int i = 0; i < 3; i++) reply(ask(i), false);
    for (int i = 0; i < 3; i++) {
        kept[i] = ask(200 + i);
        CHECK(!(kept[i] & SHMB_KEY_COPY)); /* all four are the runner's again */
        reply(kept[i], true);
    }
    int64_t x = 0;
    CHECK(shmb_host_values(b.host, kept[2], 0, &x, sizeof x) == sizeof x && x == 202);
    CHECK(shmb_host_values(b.host, kept[2], 1, &x, sizeof x) == -1);
    CHECK(shmb_host_values(b.host, kept[2], -1, &x, sizeof x) == -1);
    CHECK(shmb_host_values(b.host, key, 0, &x, sizeof x) == -1); /* its slot has another request */
    shmb_close(r);
    bridge_close(&b);
}
