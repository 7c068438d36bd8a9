/* A runner kind that a program registers answers like any other: fields, errors, wanted dtypes,
 * large and bound features. */
#include "kinds.h"
#include "message/sink.h"
#include "runner/runner.h"

static int opened, closed;

static OPENS(open_it) {
    CHECK(strcmp(context, "the context") == 0);
    CHECK(options->connect_timeout == 0 && options->size == sizeof *options);
    if (strcmp(where, "nowhere") == 0)
        return shmb_sink_fail(failure, SHMB_NO_HOST, "there is nothing at nowhere");
    if (strcmp(where, "mute") == 0) return SHMB_SYSTEM;
    CHECK(strcmp(where, "file.bin?color=blue") == 0);
    opened++;
    *state = &opened;
    return SHMB_OK;
}

/* Doubles the int64 vector "x"; an empty one is an error, and one of 7 elements a silent one. */
static ANSWERS(evaluate) {
    CHECK(state == &opened && count == 1 && strcmp(features->name, "x") == 0 &&
          features->dtype == SHMB_INT64 && (uintptr_t)features->data % 64 == 0);
    CHECK(deadline == SHMB_DEADLINE || deadline == 2.5);
    if (features->size == 0) return shmb_sink_fail(advice, SHMB_MODEL, "nothing to double");
    if (features->size == 7) return SHMB_MODEL;
    if (features->size == 5) CHECK(!shmb_sink_bytes(advice, 1));
    int64_t *to = shmb_sink_field(advice, "twice", want ? want : SHMB_INT64, SHMB_TENSOR,
                                  features->rank, features->dims, NULL);
    if (want && want != SHMB_INT64) return SHMB_OK;
    for (int64_t i = 0; i < features->size; i++) to[i] = 2 * ((const int64_t *)features->data)[i];
    return SHMB_OK;
}

static void close_it(void *state) {
    CHECK(state == &opened);
    closed++;
}

static const shmb_runner_kind kind = {.size = sizeof kind,
                                      .scheme = "twice",
                                      .context = "the context",
                                      .open = open_it,
                                      .evaluate = evaluate,
                                      .close = close_it};

int main(void) {
    shmb_runner *r;
    shmb_tensor t;
    open_fails("twice://x", NULL, SHMB_UNSUPPORTED, "\"twice://\": expected ");
    CHECK(shmb_register_runner(&kind) == SHMB_OK && shmb_register_runner(&kind) == SHMB_OK);
    shmb_runner_kind other = kind;
    CHECK(shmb_register_runner(&other) == SHMB_IN_USE);
    other.scheme = "shm";
    CHECK(shmb_register_runner(&other) == SHMB_IN_USE);
    other.scheme = "";
    CHECK(shmb_register_runner(&other) == SHMB_INVALID &&
          shmb_register_runner(NULL) == SHMB_INVALID);
    other = (shmb_runner_kind){.size = 8, .scheme = "short", .open = open_it, .evaluate = evaluate};
    CHECK(shmb_register_runner(&other) == SHMB_INVALID);

    open_fails("twice://nowhere", NULL, SHMB_NO_HOST, "nothing at nowhere");
    open_fails("twice://mute", NULL, SHMB_SYSTEM, "");

    /* an older caller's: the kind gets whole ones, with what the URL says */
    shmb_options short_ones = {.size = sizeof short_ones.size};
    CHECK_STATUS(r, shmb_open("twice://file.bin?deadline=2.5&color=blue", &short_ones, &r),
                 SHMB_OK);
    /* beyond what is kept of the memory between messages */
    for (int64_t n = 1; n < 2000000; n = n * 11 + 1) {
        int64_t *x = shmb_feature(r, "x", SHMB_INT64, 1, &n);
        for (int64_t i = 0; i < n; i++) x[i] = i + 1;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(shmb_advice_count(r) == 1 && shmb_advice(r, "twice", &t) == SHMB_OK && t.size == n &&
              ((const int64_t *)t.data)[n - 1] == 2 * n);
    }
    int64_t advice = 0;
    *(int64_t *)shmb_feature(r, "x", SHMB_INT64, 1, &(int64_t){1}) = 21;
    CHECK(evaluated(r) == 42);
    shmb_feature(r, "x", SHMB_INT64, 1, &(int64_t){0});
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_MODEL);
    CHECK(strcmp(shmb_error_message(r), "nothing to double") == 0);
    shmb_feature(r, "x", SHMB_INT64, 1, &(int64_t){7});
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_MODEL, "without saying why");
    shmb_feature(r, "x", SHMB_INT64, 1, &(int64_t){5});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID); /* bytes have no place in a message */
    shmb_feature(r, "x", SHMB_INT64, 1, &(int64_t){3});
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &(float){0}),
                 SHMB_MISMATCH); /* three elements */
    shmb_close(r);
    CHECK(opened == 1 && closed == 1);

    r = runner_open("twice://file.bin?color=blue");
    int64_t *bound = shmb_bind(r, "x", SHMB_INT64, 1, &(int64_t){2});
    for (int64_t i = 0; i < 3; i++) {
        bound[1] = i;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK(shmb_advice(r, NULL, &t) == SHMB_OK && ((const int64_t *)t.data)[1] == 2 * i);
    }
    shmb_close(r);
}
