/* Several questions in flight: each ticket gets its own answer or failure, whatever the order, the
 * number of slots and the kind of runner. */
#include "kinds.h"
#include "pipes.h"

enum { MANY = 100 };

static shmb_plan eight_slots(void) {
    shmb_plan plan = small_plan;
    plan.slots = 8;
    return plan;
}

static void expect(shmb_runner *r, shmb_ticket ticket, int64_t expected) {
    int64_t advice = -1;
    CHECK_STATUS(r, shmb_receive_i64(r, ticket, &advice), SHMB_OK);
    CHECK(advice == expected);
}

static void fails(shmb_runner *r, shmb_ticket ticket, shmb_status status) {
    int64_t advice = -1;
    CHECK_STATUS(r, shmb_receive_i64(r, ticket, &advice), status);
    CHECK(advice == -1 && shmb_advice_count(r) == 0);
}

static void answers_come_in_any_order(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket t[8];
    int64_t keys[8];
    for (int i = 0; i < 8; i++) t[i] = send_x(r, 10 * i);
    for (int i = 0; i < 8; i++) keys[i] = bridge_receive(b); /* all are open at once */
    for (int i = 0; i < 8; i++) bridge_answer(b, keys[(3 * i) % 8]);
    shmb_set_i64(r, "x", 1000); /* the next question is filled meanwhile, and stays */
    for (int i = 0; i < 8; i++) expect(r, t[(5 * i) % 8], 10 * ((5 * i) % 8) + 1);
    shmb_ticket last = shmb_send(r, SHMB_INT64);
    bridge_answer(b, bridge_receive(b));
    expect(r, last, 1001);
    CHECK(stats(r).questions == 9);
    shmb_close(r);
}

static void a_ticket_is_received_once(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket first = send_x(r, 1), second = send_x(r, 2);
    CHECK(first > 0 && second > 0 && first != second);
    for (int i = 0; i < 2; i++) bridge_answer(b, bridge_receive(b));
    expect(r, second, 3);
    fails(r, second, SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "is not open"));
    expect(r, first, 2);
    const shmb_ticket none[] = {0,
                                -1,
                                first,
                                second,
                                INT64_MAX,
                                INT64_MIN,
                                (shmb_ticket)1 << 48,
                                (shmb_ticket)16 << 48}; /* no such place */
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) fails(r, none[i], SHMB_INVALID);
    CHECK(shmb_send(NULL, SHMB_ANY) == 0 && shmb_receive(NULL, 1) == SHMB_NO_MEMORY);
    shmb_ticket third = send_x(r, 1);
    bridge_answer(b, bridge_receive(b));
    CHECK_FAILS(r, shmb_receive_i64(r, third, NULL), SHMB_INVALID, "expected a pointer");
    fails(r, third, SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "is not open"));
    shmb_close(r);
}

/* As ML-Compiler-Bridge's hosts send them: two int32, or one int64, as the caller reads them. */
static void bytes_without_a_dtype_are_one_number(void) {
    const int64_t number = 42;
    struct pipes p;
    pipes_make(&p, "");
    snprintf(p.url, sizeof p.url, "pipe://%s?serdes=bitstream", p.path);
    shmb_runner *r = pipes_meet(&p);
    pipes_write_frame(&p, 0, &number, sizeof number);
    shmb_set_i64(r, "x", 1);
    expect(r, shmb_send(r, SHMB_INT32), 42);
    shmb_close(r);
    pipes_remove(&p);
}

static shmb_ticket send_all_kinds(shmb_runner *r, int64_t x) {
    static const char *const texts[] = {"one", "", "three"};
    shmb_set_i64(r, "echo", x);
    shmb_feature_f32(r, "v", 500)[499] = (float)x;
    shmb_set_strings(r, "texts", 3, texts, NULL);
    memset(shmb_feature_ragged(r, "rows", SHMB_INT8, 2, (const int64_t[]){2, x}, 1, NULL), (int)x,
           (size_t)(2 + x));
    shmb_feature(r, "none", SHMB_FLOAT64, 2, (const int64_t[]){0, 3});
    return shmb_send(r, SHMB_ANY);
}

static void expect_all_kinds(shmb_runner *r, shmb_ticket ticket, int64_t x) {
    shmb_tensor t;
    CHECK_STATUS(r, shmb_receive(r, ticket), SHMB_OK);
    CHECK(shmb_advice_count(r) == 5);
    CHECK(shmb_advice(r, "echo", &t) == SHMB_OK && *(const int64_t *)t.data == x);
    CHECK(shmb_advice(r, "v", &t) == SHMB_OK && t.size == 500 &&
          ((const float *)t.data)[499] == (float)x && (uintptr_t)t.data % 64 == 0);
    CHECK(shmb_advice(r, "texts", &t) == SHMB_OK && t.kind == SHMB_STRINGS && t.offsets[3] == 8 &&
          t.offsets[1] == 3 && memcmp(t.data, "onethree", 8) == 0);
    CHECK(shmb_advice(r, "rows", &t) == SHMB_OK && t.dims[1] == 2 + x && t.offsets[2] == 2 + x &&
          ((const int8_t *)t.data)[1 + x] == x);
    CHECK(shmb_advice(r, "none", &t) == SHMB_OK && t.rank == 2 && t.dims[1] == 3 && t.size == 0);
}

/* The advice is read in the slot, or from a copy where it came before it was asked for. */
static void advice_of_all_kinds_stays_readable(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket t[4];
    for (int i = 0; i < 4; i++) t[i] = send_all_kinds(r, i);
    for (int i = 0; i < 4; i++) bridge_answer(b, bridge_receive(b));
    for (int i = 3; i >= 0; i--) expect_all_kinds(r, t[i], i);
    shmb_close(r);
}

static void a_failure_is_its_own_questions(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket good = send_x(r, 1);
    feature_u8(r, "x", 1)[0] = 1;
    shmb_ticket bad = shmb_send(r, SHMB_INT64);
    shmb_set_i64(r, "", 1); /* no name */
    shmb_ticket unsent = shmb_send(r, SHMB_INT64);
    shmb_set_i64(r, "x", 1);
    shmb_ticket no_dtype = shmb_send(r, (shmb_dtype)99), next = send_x(r, 2);
    for (int i = 0; i < 2; i++) shmb_set_i64(r, "twice", 1);
    shmb_ticket refused = shmb_send(r, SHMB_INT64); /* only as it is sent */
    for (int i = 0; i < 3; i++) bridge_answer(b, bridge_receive(b));
    expect(r, next, 3);
    CHECK(stats(r).failures[SHMB_MODEL] == 0); /* not yet received */
    fails(r, bad, SHMB_MODEL);
    CHECK(strcmp(shmb_error_message(r), "unknown dtype") == 0);
    fails(r, unsent, SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "needs a name"));
    fails(r, no_dtype, SHMB_INVALID);
    fails(r, refused, SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "same name"));
    expect(r, good, 2);
    CHECK(stats(r).questions == 6 && stats(r).failures[SHMB_MODEL] == 1 &&
          stats(r).failures[SHMB_INVALID] == 3);
    shmb_close(r);
}

static void each_has_its_deadline_and_default(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "deadline=0.05&default_advice=-7");
    shmb_ticket t[4];
    int64_t keys[4];
    for (int i = 0; i < 4; i++) t[i] = send_x(r, i);
    for (int i = 0; i < 4; i++) keys[i] = bridge_receive(b);
    bridge_answer(b, keys[2]);
    int64_t began = shmb_clock_ns();
    expect(r, t[0], -7);
    expect(r, t[1], -7); /* late by now, too */
    CHECK(shmb_clock_ns() - began < 90 * 1000000);
    expect(r, t[2], 3); /* came in time */
    bridge_answer(b, keys[3]);
    expect(r, t[3], 4); /* late, but there when it is received */
    CHECK(stats(r).defaulted == 2 && stats(r).failures[SHMB_TIMEOUT] == 2);
    expect(r, send_x(r, 5), -7); /* not asked: an answer is late */
    bridge_answer(b, keys[0]);
    bridge_answer(b, keys[1]);
    shmb_ticket again = send_x(r, 6);
    bridge_answer(b, bridge_receive(b));
    expect(r, again, 7);
    shmb_close(r);
}

static void an_interrupt_gives_up_one(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket first = send_x(r, 1), second = send_x(r, 2);
    shmb_interrupt(r);
    fails(r, first, SHMB_INTERRUPTED);
    for (int i = 0; i < 2; i++) bridge_answer(b, bridge_receive(b));
    expect(r, second, 3);
    shmb_close(r);
}

static void a_child_gets_forked(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    shmb_ticket kept = send_x(r, 1), open = send_x(r, 2);
    for (int i = 0; i < 2; i++) bridge_answer(b, bridge_receive(b));
    expect(r, open, 3);
    pid_t pid = fork();
    if (pid == 0) {
        fails(r, kept, SHMB_FORKED);
        fails(r, send_x(r, 1), SHMB_FORKED);
        shmb_close(r);
        exit(0);
    }
    CHECK(process_wait(pid) == 0);
    expect(r, kept, 2);
    shmb_close(r);
}

/* Any number of questions, evaluates between them, and bound features, with few slots. */
static void the_number_of_slots_does_not_matter(struct server *s) {
    shmb_ticket t[MANY];
    shmb_runner *r = runner_open(s->bridge.name), *bound;
    for (int i = 0; i < MANY; i++) {
        t[i] = send_all_kinds(r, i);
        if (i % 9 == 0) CHECK(asked(r, i) == i + 1);
        else shmb_set_i64(r, "x", i);
        shmb_discard(r);
    }
    for (int i = 0; i < MANY; i++) expect_all_kinds(r, t[i * 37 % MANY], i * 37 % MANY);
    bound = runner_open(s->bridge.name);
    int64_t *x = shmb_bind(bound, "x", SHMB_INT64, 0, NULL);
    for (int i = 0; i < 10; i++) {
        *x = i;
        t[i] = shmb_send(bound, SHMB_INT64);
    }
    for (int i = 0; i < 10; i++) expect(bound, t[i], i + 1);
    shmb_close(bound);
    for (int i = 0; i < MANY; i++) send_x(r, i);
    shmb_close(r); /* with open tickets */
}

static void questions_without_end_are_refused(struct server *s) {
    shmb_ticket first = 0, next;
    int64_t count = 0;
    shmb_runner *r = runner_open(s->bridge.name);
    for (; (next = send_x(r, count)); count++) first = first ? first : next;
    CHECK(count == 32767);
    fails(r, 0, SHMB_INVALID);
    expect(r, first, 1);
    expect(r, send_x(r, 5), 6);
    shmb_close(r);
}

static void answer_the_second(struct bridge *b) {
    int64_t first = bridge_receive(b);
    bridge_answer(b, bridge_receive(b));
    CHECK(shmb_host_message(b->host, first));
    shmb_host_receive(b->host, 100000000);
    raise(SIGKILL);
}

static void what_was_answered_outlives_the_host(const char *query) {
    char name[64], url[128];
    pid_t host = host_process("tickets-dies", name, answer_the_second);
    snprintf(url, sizeof url, "shm://%s?%s", name, query);
    shmb_runner *r = runner_open(url);
    shmb_ticket first = send_x(r, 1), second = send_x(r, 2);
    fails(r, first, SHMB_HOST_GONE);
    fails(r, send_x(r, 3), SHMB_HOST_GONE);
    expect(r, second, 3);
    shmb_close(r);
    CHECK(process_wait(host) == 128 + SIGKILL && bridge_clean(name));
}

/* ---- Kinds that have one question at a time ---- */

static ANSWERS(twice) {
    int64_t x = *(const int64_t *)features->data;
    if (count != 1 || x < 0) return shmb_sink_fail(advice, SHMB_MODEL, "negative");
    return advise_i64(advice, 2 * x);
}

static void a_plug_in_answers_while_it_is_asked(void) {
    shmb_ticket t[MANY];
    kind_register("twice", twice);
    shmb_runner *r = runner_open("twice://x");
    for (int i = 0; i < MANY; i++) t[i] = send_x(r, i - 1);
    fails(r, t[0], SHMB_MODEL);
    CHECK(strcmp(shmb_error_message(r), "negative") == 0);
    for (int i = MANY - 1; i > 0; i--) expect(r, t[i], 2 * (i - 1));
    shmb_close(r);
    r = runner_open("twice://x?retries=1&default_advice=5");
    for (int i = 0; i < MANY; i++) t[i] = send_x(r, i - 1);
    for (int i = 0; i < MANY; i++) expect(r, t[i], i ? 2 * (i - 1) : 5);
    CHECK(stats(r).defaulted == 1);
    shmb_close(r);
}

static void a_runner_that_did_not_open_says_why(void) {
    shmb_runner *r;
    CHECK(shmb_open("shm://nobody-here", NULL, &r) == SHMB_NO_HOST);
    shmb_ticket t = send_x(r, 1), other = send_x(r, 2);
    fails(r, other, SHMB_NO_HOST);
    fails(r, t, SHMB_NO_HOST);
    shmb_close(r);
}

int main(void) {
    struct bridge b;
    struct server s;
    bridge_open(&b, "tickets", eight_slots(), SHMB_WAIT_DEFAULT);
    answers_come_in_any_order(&b);
    a_ticket_is_received_once(&b);
    advice_of_all_kinds_stays_readable(&b);
    a_failure_is_its_own_questions(&b);
    each_has_its_deadline_and_default(&b);
    an_interrupt_gives_up_one(&b);
    bytes_without_a_dtype_are_one_number();
    a_child_gets_forked(&b);
    bridge_close(&b);
    server_start(&s, "tickets-two", SHMB_WAIT_DEFAULT);
    the_number_of_slots_does_not_matter(&s);
    questions_without_end_are_refused(&s);
    server_stop(&s);
    what_was_answered_outlives_the_host("");
    what_was_answered_outlives_the_host("wait=block");
    a_plug_in_answers_while_it_is_asked();
    a_runner_that_did_not_open_says_why();
}
