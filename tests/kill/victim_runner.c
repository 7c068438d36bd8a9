/* A runner's whole conversation: connect, requests of all kinds, several in flight, close, connect
 * again, bind, close.
 * Usage: NAME QUERY Prints "result STATUS CLOCK_NS STEPS"; the step build stops it before the store
 * that SHMB_STEP says. */
#include <inttypes.h>

#include "../c/bridge.h"

long shmb_steps(void);

static int expect(shmb_runner *r, shmb_status status) {
    int found = (int)shmb_evaluate(r);
    return found == (int)status ? 0 : found ? found : 99;
}

/* The request comes back as its advice. */
static int echo(shmb_runner *r, int64_t x) {
    shmb_tensor t;
    int status = expect(r, SHMB_OK);
    if (!status) CHECK(shmb_advice(r, "echo", &t) == SHMB_OK && *(const int64_t *)t.data == x);
    return status;
}

static int converse(shmb_runner *r) {
    static const char *const texts[] = {"one", "", "three"};
    int status = 0;
    for (int64_t i = 0; !status && i < 2; i++) { /* a scalar, then the same layout */
        int64_t advice;
        shmb_set_i64(r, "x", i);
        status = (int)shmb_evaluate_i64(r, &advice);
        if (!status) CHECK(advice == i + 1);
    }
    for (int64_t n = 3; !status && n <= 9; n += 3) { /* another layout, then other dims */
        shmb_set_i64(r, "echo", n);
        float *v = shmb_feature_f32(r, "v", n);
        for (int i = 0; i < n; i++) v[i] = (float)i;
        status = echo(r, n);
    }
    for (int64_t i = 0; !status && i < 2; i++) { /* strings and lists */
        shmb_set_i64(r, "echo", i);
        shmb_set_string(r, "s", texts[2 * i], -1);
        shmb_set_strings(r, "texts", 3 - i, texts, NULL);
        memset(shmb_feature_ragged(r, "rows", SHMB_INT8, 2, (const int64_t[]){2, i}, 1, NULL), 1,
               (size_t)(2 + i));
        status = echo(r, i);
    }
    if (!status) { /* the model's errors, short and long */
        shmb_feature_u8(r, "x", 1)[0] = 1;
        status = expect(r, SHMB_MODEL);
    }
    if (!status) {
        memset(shmb_feature_u8(r, "echo", 5000), 1, 5000);
        status = expect(r, SHMB_TOO_LARGE);
    }
    return status;
}

/* More than there are slots, received in another order: what is lost is lost for all that are not
 * answered. */
static int converse_in_flight(shmb_runner *r) {
    enum { MANY = 7 };
    shmb_ticket tickets[MANY];
    int first = 0;
    for (int64_t i = 0; i < MANY; i++) {
        shmb_set_i64(r, "echo", i);
        shmb_feature_f32(r, "v", 20)[19] = (float)i;
        tickets[i] = shmb_send(r, SHMB_ANY);
    }
    for (int k = 0; k < MANY; k++) {
        shmb_tensor t;
        int64_t i = 3 * k % MANY;
        int status = (int)shmb_receive(r, tickets[i]);
        if (!status) CHECK(shmb_advice(r, "echo", &t) == SHMB_OK && *(const int64_t *)t.data == i);
        if (!status)
            CHECK(shmb_advice(r, "v", &t) == SHMB_OK && ((const float *)t.data)[19] == (float)i);
        if (status && first) CHECK(status == first);
        if (status) first = status;
    }
    return first;
}

static int converse_bound(shmb_runner *r) {
    int64_t *x = shmb_bind(r, "echo", SHMB_INT64, 0, NULL), status = 0;
    for (int i = 0; !status && i < 3; i++) {
        *x = i;
        status = echo(r, i);
    }
    return (int)status;
}

int main(int argc, char **argv) {
    char url[256];
    int status = 0;
    CHECK(argc == 3);
    snprintf(url, sizeof url, "shm://%s?%s", argv[1], argv[2]);
    for (int bound = 0; bound < 2 && !status; bound++) {
        shmb_runner *r;
        status = (int)shmb_open(url, NULL, &r);
        if (!status) status = bound ? converse_bound(r) : converse(r);
        if (!status && !bound) status = converse_in_flight(r);
        if (status)
            printf("result %d %" PRId64 " %ld %s\n", status, shmb_clock_ns(), shmb_steps(),
                   shmb_error_message(r));
        shmb_close(r);
    }
    if (!status) printf("result 0 %" PRId64 " %ld\n", shmb_clock_ns(), shmb_steps());
    return 0;
}
