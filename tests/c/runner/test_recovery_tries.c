/* What is tried anew, how often, and what is not: a registered kind counts. */
#include "kinds.h"

enum { LONG = 100 };

static int opens, asks, closes;
static shmb_status opening[LONG], answering[LONG]; /* by attempt */
static double deadline_seen, timeout_seen, deadline_said;

static void expect(const shmb_status *open_with, const shmb_status *answer_with) {
    memset(opening, 0, sizeof opening);
    memset(answering, 0, sizeof answering);
    for (int i = 0; open_with && open_with[i] != SHMB_RUNNER_GONE; i++) opening[i] = open_with[i];
    for (int i = 0; answer_with && answer_with[i] != SHMB_RUNNER_GONE; i++)
        answering[i] = answer_with[i];
    opens = asks = closes = 0;
}
#define SCRIPT(...)                                                                                \
    (const shmb_status[]) { __VA_ARGS__, SHMB_RUNNER_GONE }

static OPENS(open_one) {
    CHECK(options->retries == 0 && strcmp(where, "here?own=1") == 0);
    timeout_seen = options->connect_timeout;
    if (deadline_said > 0) shmb_sink_deadline(failure, deadline_said);
    shmb_status status = opening[opens++];
    return status ? shmb_sink_fail(failure, status, "no way in") : SHMB_OK;
}

static ANSWERS(evaluate_one) {
    CHECK(count == 3 && features[0].dtype == SHMB_INT64 &&
          *(const int64_t *)features[0].data == 41);
    CHECK(features[1].kind == SHMB_STRINGS && features[1].dims[0] == 2 &&
          features[1].offsets[2] == 4 && memcmp(features[1].data, "abcd", 4) == 0);
    CHECK(features[2].size == 1000 && ((const float *)features[2].data)[999] == 999);
    deadline_seen = deadline;
    shmb_status status = answering[asks++];
    if (status) return shmb_sink_fail(advice, status, "no advice");
    return advise_i64(advice, 42);
}

static void close_one(void *state) { closes++; }

static shmb_status ask(shmb_runner *r) {
    static const char *const texts[] = {"abc", "d"};
    int64_t advice = 0;
    shmb_set_i64(r, "x", 41);
    shmb_set_strings(r, "texts", 2, texts, NULL);
    float *v = shmb_feature_f32(r, "v", 1000);
    for (int i = 0; i < 1000; i++) v[i] = (float)i;
    shmb_status status = shmb_evaluate_i64(r, &advice);
    CHECK(advice == (status ? 0 : 42));
    return status;
}

static shmb_runner *with(const char *options, shmb_status expected) {
    char url[256];
    shmb_runner *r;
    snprintf(url, sizeof url, "counting://here?own=1&%s", options);
    CHECK_STATUS(r, shmb_open(url, NULL, &r), expected);
    return r;
}

/* An evaluate whose first questions end so: how many were asked, and what came of it. */
static void each_status(void) {
    for (int s = SHMB_OK; s <= SHMB_NO_MEMORY; s++) {
        bool again = s == SHMB_NO_HOST || s == SHMB_BUSY || s == SHMB_HOST_GONE ||
                     s == SHMB_CLOSED || s == SHMB_CORRUPT;
        if (s == SHMB_RUNNER_GONE) continue; /* ends a script */
        expect(NULL, SCRIPT(s, s, SHMB_OK));
        shmb_runner *r = with("retries=2&backoff=1us", SHMB_OK);
        CHECK_STATUS(r, ask(r), again ? SHMB_OK : s);
        CHECK(asks == (again ? 3 : 1) && opens == asks);
        shmb_close(r);
        CHECK(closes == opens);

        expect(NULL, SCRIPT(s, s, SHMB_OK)); /* one too few */
        r = with("retries=1&backoff=1us&deadline=100", SHMB_OK);
        CHECK_STATUS(r, ask(r), s);
        CHECK(asks == (again ? 2 : 1) && deadline_seen > 0 && deadline_seen <= 100);
        if (again) CHECK(strstr(shmb_error_message(r), "after 1 more tries: no advice"));
        shmb_close(r);

        expect(SCRIPT(SHMB_OK, s), SCRIPT(SHMB_HOST_GONE)); /* connecting fails */
        r = with("retries=2&backoff=1us&connect_timeout=0", SHMB_OK);
        CHECK_STATUS(r, ask(r), again || s == SHMB_TIMEOUT || !s ? SHMB_OK : s);
        CHECK(opens == (s && (again || s == SHMB_TIMEOUT) ? 3 : 2));
        shmb_close(r);
    }
}

/* The retries used up, evaluates ask nobody, until it is time for a look; one that finds somebody
 * has them all again. */
static void gives_up_for_a_while(void) {
    expect(NULL, SCRIPT(SHMB_CLOSED, SHMB_CLOSED));
    shmb_runner *r = with("retries=1&backoff=10ms", SHMB_OK);
    CHECK_STATUS(r, ask(r), SHMB_CLOSED);
    CHECK(opens == 2);
    int failed = 0;
    while (ask(r)) failed++; /* at once, thousands of times */
    CHECK(failed > 100 && opens == 3 && asks == 3);
    answering[3] = SHMB_CLOSED;
    CHECK_STATUS(r, ask(r), SHMB_OK);
    CHECK(opens == 4 && asks == 5);
    shmb_close(r);

    expect(NULL, SCRIPT(SHMB_CLOSED, SHMB_CLOSED, SHMB_CLOSED));
    r = with("retries=1&backoff=10ms", SHMB_OK);
    shmb_status last = SHMB_OK;
    while (asks < 3) last = ask(r);
    CHECK(last == SHMB_OK && asks == 4); /* the look's own question is tried again */
    shmb_close(r);

    expect(SCRIPT(SHMB_NO_HOST), NULL); /* the same where nobody was there at first */
    r = with("retries=1&backoff=1us&connect_timeout=0", SHMB_NO_HOST);
    for (shmb_status status = SHMB_NO_HOST; status;)
        CHECK((status = ask(r)) == SHMB_OK || status == SHMB_NO_HOST);
    CHECK(opens == 2 && asks == 1);
    shmb_close(r);
    expect(SCRIPT(SHMB_INCOMPATIBLE), NULL); /* but not where that is no matter of time */
    r = with("retries=1&backoff=1us", SHMB_INCOMPATIBLE);
    CHECK_STATUS(r, ask(r), SHMB_INCOMPATIBLE);
    CHECK(opens == 1);
    shmb_close(r);
}

/* A pause that would outlast the deadline is not begun. */
static void deadline(void) {
    expect(NULL, SCRIPT(SHMB_HOST_GONE, SHMB_HOST_GONE));
    shmb_runner *r = with("retries=1000&backoff=1000&deadline=100", SHMB_OK);
    CHECK_STATUS(r, ask(r), SHMB_HOST_GONE);
    CHECK(opens == 1 && asks == 1);
    CHECK_STATUS(r, ask(r), SHMB_HOST_GONE);
    CHECK(opens == 1 && asks == 1);
    shmb_close(r);
}

/* The question that finds another host has that one's deadline, and no more time to connect than
 * the caller gives. */
static void the_next_host(void) {
    expect(NULL, SCRIPT(SHMB_HOST_GONE));
    deadline_said = 50;
    shmb_runner *r = with("retries=1&backoff=1us&connect_timeout=1ms", SHMB_OK);
    deadline_said = 1000;
    CHECK_STATUS(r, ask(r), SHMB_OK);
    CHECK(opens == 2 && timeout_seen <= 0.001 && deadline_seen > 50 && deadline_seen <= 1000);
    deadline_said = 0;
    shmb_close(r);
}

static shmb_runner *outer;

static ANSWERS(evaluate_and_interrupt) {
    if (!asks++) {
        shmb_interrupt(outer);
        return shmb_sink_fail(advice, SHMB_INTERRUPTED, "as it was told");
    }
    return advise_i64(advice, 42);
}

/* An interrupt that ended a question is not the next one's, too. */
static void interrupts_end_one_question(void) {
    asks = 0;
    outer = runner_open("interrupts://x?retries=1");
    int64_t advice;
    CHECK_STATUS(outer, shmb_evaluate_i64(outer, &advice), SHMB_INTERRUPTED);
    CHECK(evaluated(outer) == 42 && asks == 2);
    shmb_close(outer);
}

/* With a default too, it is taken when the retries are used up. */
static void default_advice(void) {
    expect(NULL, SCRIPT(SHMB_HOST_GONE, SHMB_HOST_GONE));
    shmb_runner *r = with("retries=1&backoff=1s&deadline=10&default_advice=42", SHMB_OK);
    for (int i = 1; i < 100; i++) {
        CHECK_STATUS(r, ask(r), SHMB_OK);
        CHECK(stats(r).defaulted == i && asks == 2 && opens == 2);
    }
    shmb_close(r);
}

static void bad_options(void) {
    for (const char *const *bad = TEXTS("retries=-1", "retries=", "retries=1.5", "retries=x",
                                        "retries=2147483648", "retries=99999999999999999999",
                                        "backoff=-1", "backoff=nan", "backoff=", "backoff=1h");
         *bad; bad++) {
        shmb_runner *r = with(*bad, SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), *bad));
        shmb_close(r);
    }
    for (int i = 0; i < 3; i++) {
        shmb_options o = {.size = sizeof o,
                          .retries = -(i == 0),
                          .backoff = i == 1   ? -1
                                     : i == 2 ? 0.0 / 0.0
                                              : 0};
        open_fails("counting://here?own=1", &o, SHMB_INVALID, i ? "backoff" : "retries");
    }
    expect(NULL, NULL);
    shmb_close(with("retries=2147483647&backoff=1000000000000", SHMB_OK));
    /* an older caller's */
    shmb_options old = {.size = offsetof(shmb_options, retries), .retries = -1};
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open("counting://here?own=1", &old, &r), SHMB_OK);
    shmb_close(r);
}

int main(void) {
    static const shmb_runner_kind kind = {.size = sizeof kind,
                                          .scheme = "counting",
                                          .open = open_one,
                                          .evaluate = evaluate_one,
                                          .close = close_one};
    CHECK(shmb_register_runner(&kind) == SHMB_OK);
    each_status();
    gives_up_for_a_while();
    deadline();
    the_next_host();
    kind_register("interrupts", evaluate_and_interrupt);
    interrupts_end_one_question();
    default_advice();
    bad_options();
}
