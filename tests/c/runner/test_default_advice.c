/* A runner with a default advice goes on where nobody advises: it opens without a host, gives the
 * number in the wanted dtype, counts, says so once; the caller's own faults stay. Without one, the
 * first failure is reported once. */
#include "kinds.h"

static int said, errors; /* a pipe's end: what the library writes to stderr; that stderr was */

/* What was said since the last time. */
static const char *hear(void) {
    static char text[4096];
    fflush(stderr);
    ssize_t n = read(said, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* What else was said, such as why the test fails. */
static void tell(void) {
    const char *text = hear();
    if (write(errors, text, strlen(text)) < 0) abort();
}

static shmb_runner *with_default(const char *url, const char *advice, shmb_status expected) {
    shmb_runner *r;
    shmb_options o = {.size = sizeof o, .default_advice = advice};
    CHECK_STATUS(r, shmb_open(url, &o, &r), expected);
    return r;
}

static void texts(void) {
    char url[128];
    for (const char *const *bad = TEXTS("", "abc", "1e999", "nan", "NaN", "Infinity", "-Infinity",
                                        "inf", "0x10", "1 ", " 1", "+1", ".5", "1.", "1,5", "--1",
                                        "18446744073709551616", "true", "[1]", "\"1\"");
         *bad; bad++) {
        shmb_runner *r = with_default("nobody", *bad, SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), "default_advice=") &&
              strstr(shmb_error_message(r), "expected a finite number"));
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
        CHECK(stats(r).defaulted == 0);
        shmb_close(r);
        snprintf(url, sizeof url, "nobody?connect_timeout=0&default_advice=%s", *bad);
        open_fails(url, NULL, SHMB_INVALID, "");
    }
    for (const char *const *good = TEXTS("0", "-1", "1.5", "1e-3", "-0.0", "9223372036854775807",
                                         "18446744073709551615", "1E+2");
         *good; good++)
        shmb_close(with_default("nobody", *good, SHMB_OK));
    snprintf(url, sizeof url, "nobody?default_advice=2"); /* what the URL says wins */
    shmb_runner *r = with_default(url, "abc", SHMB_OK);
    CHECK(evaluated(r) == 2);
    shmb_close(r);
    hear();
}

/* No host: everything works but that nobody looks at the features. */
static void without_a_host(void) {
    shmb_runner *r = with_default("shm://nobody-here", "3", SHMB_OK);
    shmb_tensor t;
    int64_t i64 = 0;
    int32_t i32 = 0;
    float f32 = 0;
    double f64 = 0;
    CHECK(!*hear());
    shmb_feature_f32(r, "x", 5)[4] = 1;
    shmb_set_string(r, "s", "text", -1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    const char *line = hear();
    CHECK(strstr(line, "shmbridge: shm://nobody-here: ") == line &&
          strstr(line, ": continuing with the default advice 3 (counted; reported once)\n"));
    CHECK(shmb_advice_count(r) == 1 && shmb_advice(r, NULL, &t) == SHMB_OK);
    CHECK(strcmp(t.name, "advice") == 0 && t.rank == 0 && t.size == 1 && t.kind == SHMB_TENSOR &&
          t.dtype == SHMB_INT64 && *(const int64_t *)t.data == 3);
    CHECK(shmb_advice(r, "advice", &t) == SHMB_OK && shmb_advice_at(r, 0, &t) == SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &i64), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_INT32, &i32), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &f32), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT64, &f64), SHMB_OK);
    CHECK(i64 == 3 && i32 == 3 && f32 == 3 && f64 == 3);
    for (int d = SHMB_BOOL; d <= SHMB_BFLOAT16; d++)
        CHECK_STATUS(r, shmb_evaluate_as(r, (shmb_dtype)d),
                     d == SHMB_BOOL ? SHMB_INEXACT : SHMB_OK);
    CHECK(stats(r).defaulted == 5 + 12);
    CHECK_STATUS(r, shmb_evaluate_as(r, (shmb_dtype)99), SHMB_NO_HOST); /* no dtype for a default */
    CHECK(shmb_advice_count(r) == 0 && stats(r).defaulted == 17);
    CHECK(strstr(hear(), "not exactly representable as bool: ")); /* a failure all the same */
    CHECK(shmb_advice_at(r, 1, &t) == SHMB_INVALID);
    shmb_close(r);

    r = with_default("nobody-here", "0", SHMB_OK);
    int64_t *bound = shmb_bind(r, "b", SHMB_INT64, 0, NULL);
    for (int i = 0; i < 3; i++) {
        *bound = i;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    }
    CHECK(stats(r).defaulted == 3);
    shmb_close(r);
    hear();
}

/* Fractions: float32 gets the nearest, integers must be exact. */
static void fractions(void) {
    shmb_runner *r = with_default("nobody-here", "0.1", SHMB_OK);
    shmb_tensor t;
    float f32;
    double f64;
    int64_t i64 = 7;
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT32, &f32), SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_number(r, SHMB_FLOAT64, &f64), SHMB_OK);
    CHECK(f32 == 0.1f && f64 == 0.1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &i64), SHMB_INEXACT);
    CHECK(i64 == 7 && strstr(shmb_error_message(r), "0.1") &&
          strstr(shmb_error_message(r), "int64"));
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, "advice", SHMB_FLOAT32, &f32), SHMB_OK);
    CHECK_STATUS(r, shmb_advice_number(r, NULL, SHMB_INT64, &i64), SHMB_INEXACT);
    CHECK_STATUS(r, shmb_advice_number(r, NULL, SHMB_FLOAT64, &f64), SHMB_OK);
    CHECK(f32 == 0.1f && f64 == 0.1 && shmb_advice(r, NULL, &t) == SHMB_OK &&
          t.dtype == SHMB_FLOAT64 && stats(r).defaulted == 3);
    shmb_close(r);
    r = with_default("nobody-here", "1e3", SHMB_OK);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &i64), SHMB_OK);
    CHECK(i64 == 1000);
    shmb_close(r);
    hear();
}

/* Each status of a model behind a registered scheme: its own advice, the default, or the error. */
static shmb_status next;

static OPENS(open_any) {
    /* the library's own business */
    CHECK(options->retries == 0 && options->backoff == 0 && !options->default_advice);
    return *where ? shmb_sink_fail(failure, next, "did not open") : SHMB_OK;
}

static ANSWERS(evaluate_any) {
    if (next) return shmb_sink_fail(advice, next, "as it was told");
    return advise_i64(advice, 5);
}

static void statuses(void) {
    static const shmb_runner_kind any = {
        .size = sizeof any, .scheme = "any", .open = open_any, .evaluate = evaluate_any};
    CHECK(shmb_register_runner(&any) == SHMB_OK);
    for (int s = SHMB_OK; s <= SHMB_NO_MEMORY; s++) {
        bool opens = s == SHMB_NO_HOST || s == SHMB_BUSY || s == SHMB_HOST_GONE ||
                     s == SHMB_CLOSED || s == SHMB_CORRUPT || s == SHMB_TIMEOUT;
        bool defaults = opens || s == SHMB_DROPPED || s == SHMB_MODEL;
        int64_t advice = 0;
        next = SHMB_OK;
        shmb_runner *r = with_default("any://", "8", SHMB_OK);
        next = (shmb_status)s;
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), s && !defaults ? s : SHMB_OK);
        CHECK(advice == (s == SHMB_OK ? 5
                         : defaults   ? 8
                                      : 0) &&
              stats(r).defaulted == (s && defaults));
        next = SHMB_OK; /* is it for good? */
        shmb_set_deadline(r, 0);
        bool lasts = s == SHMB_HOST_GONE || s == SHMB_CLOSED || s == SHMB_CORRUPT;
        shmb_status after = s == SHMB_FORKED ? SHMB_FORKED : SHMB_OK;
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), after);
        if (!after) CHECK(advice == (lasts ? 8 : 5));
        shmb_close(r);
        next = (shmb_status)s;
        if (s) shmb_close(with_default("any://fails", "8", opens ? SHMB_OK : (shmb_status)s));
    }
    hear();
}

/* A host that answers, fails, is slow, and goes: said once, and its own advice is taken again
 * whenever there is some. */
static void with_a_host(void) {
    struct bridge b;
    int64_t advice = 0;
    bridge_open(&b, "default", small_plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "default_advice=-4");
    bridge_asked(&b, r, 1);
    CHECK(stats(r).defaulted == 0);
    feature_u8(r, "x", 1)[0] = 1; /* the model fails */
    CHECK_STATUS(r, bridge_turn(&b, r, SHMB_INT64), SHMB_OK);
    shmb_tensor t;
    CHECK(stats(r).defaulted == 1 && shmb_advice(r, NULL, &t) == SHMB_OK &&
          *(const int64_t *)t.data == -4);
    CHECK(strstr(hear(), "unknown dtype: continuing with the default advice -4"));
    bridge_asked(&b, r, 1);
    CHECK(shmb_advice(r, NULL, &t) == SHMB_OK && *(const int64_t *)t.data == 2 &&
          stats(r).defaulted == 1);
    shmb_set_deadline(r, 0.01);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK); /* nobody answers */
    CHECK(advice == -4 && stats(r).defaulted == 2);
    shmb_set_deadline(r, 0);
    shmb_set_i64(r, "x", 1);
    shmb_set_i64(r, "x", 1);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INVALID);
    CHECK(strstr(hear(), ": no advice")); /* the caller's fault is reported too */
    shmb_interrupt(r);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_INTERRUPTED);
    memset(feature_u8(r, "x", 70000), 0, 70000);
    CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_TOO_LARGE);
    pid_t child = fork();
    if (child == 0)
        _exit(shmb_evaluate_i64(r, &advice) == SHMB_FORKED && stats(r).defaulted == 2 ? 0 : 1);
    CHECK(process_wait(child) == 0);
    shmb_host_close(b.host);
    for (int i = 3; i < 6; i++) {
        CHECK_STATUS(r, shmb_evaluate_i64(r, &advice), SHMB_OK);
        CHECK(advice == -4 && stats(r).defaulted == i);
    }
    CHECK(!*hear());
    shmb_close(r);
    bridge_close(&b);
}

static void keep_line(void *context, const char *line) {
    char *kept = context;
    snprintf(kept + strlen(kept), 256, "%.200s\n", line);
}

static void the_first_failure(void) {
    char logged[512] = "";
    shmb_options to_log = {.size = sizeof to_log, .log = keep_line, .log_context = logged};
    hear();
    for (int i = 0; i < 2; i++) {
        shmb_runner *r;
        CHECK_STATUS(r, shmb_open("nobody?wait=spin", i ? &to_log : NULL, &r), SHMB_NO_HOST);
        CHECK(!*hear());
        for (int asked = 0; asked < 3; asked++) CHECK_STATUS(r, shmb_evaluate(r), SHMB_NO_HOST);
        const char *line = i ? logged : hear();
        CHECK(strncmp(line, "shmbridge: shm://nobody: ", 25) == 0);
        CHECK(strchr(line, '\n')[1] == 0);
        shmb_close(r);
    }
    CHECK(!*hear());
}

int main(void) {
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    errors = dup(2);
    dup2(ends[1], 2);
    said = ends[0];
    atexit(tell);
    texts();
    without_a_host();
    fractions();
    statuses();
    with_a_host();
    the_first_failure();
    CHECK(stats(NULL).defaulted == 0);
}
