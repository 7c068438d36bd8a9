/* What a host and its runners do while the search decides about time, memory and death. A request
 * contains 100 * runner + question, twice; its reply that number + 1, once or 16 times. */
#include <stdlib.h>

#include "explore.h"
#include "host/host.h"
#include "runner/runner.h"
#include "segment/attach.h"
#include "segment/channel.h"
#include "segment/inspect.h"
#include "segment/peer.h"

void explore_forget_pace(shmb_host *h);

/* world.shared: */
enum { REPLIED, RECEIVED, CLOSES };

/* ---- The host ---- */

static shmb_host *start_host(void) {
    static const uint8_t session[16] = {1};
    shmb_plan plan = {1, 2, 256, 64, 64};
    struct error e = {0};
    shmb_host *h;
    int fd = 100;
    world.threads[0].files = 1;
    expect(shmb_plan_bytes(&plan) == 8192);
    expect(shmb_peer_take(fd, HOST_BYTE));
    expect(shmb_host_create(fd, &plan, session, SHMB_WAIT_BLOCK, &h) == SHMB_OK && !e.status);
    world.memory.published = world.memory.threads[0].now;
    world.open = true; /* link() */
    return h;
}

static int64_t receive(shmb_host *h) {
    int64_t key;
    do {
        explore_forget_pace(h);
        key = shmb_host_receive(h, SLICE_NS);
    } while (key == -SHMB_TIMEOUT || key == -SHMB_INTERRUPTED);
    expect(key >= 0);
    return key;
}

static int read_request(shmb_host *h, int64_t key) {
    const shmb_message *m = shmb_host_message(h, key);
    int32_t x[2];
    expect(m && m->count == 1 && m->tensors->size == 2);
    explore_read(x, m->tensors->data, sizeof x);
    explore_note("receives question %d", x[0]);
    expect(x[0] == x[1]);
    return x[0];
}

/* In order, and each once: but for those that a runner gave up or did not live to send. */
static void check_order(int number) {
    int *last = &world.shared[RECEIVED];
    bool follows = number == *last + 1 || (number > *last && scenario->timeouts);
    expect(follows || (number / 100 > *last / 100 && number % 100 == 1));
    *last = number;
}

static void reply(shmb_host *h, int64_t key, bool keep, int number) {
    int32_t values[16];
    int64_t one = number + 1, sizes[1] = {16};
    for (int i = 0; i < 16; i++) values[i] = number + 1;
    shmb_tensor many = {"advice", SHMB_INT32, SHMB_TENSOR, 1, 16, sizes, NULL, values},
                alone = {"advice", SHMB_INT64, SHMB_TENSOR, 0, 1, NULL, NULL, &one};
    shmb_status status = shmb_host_reply(h, key, keep, number % 2 ? &many : &alone, 1);
    explore_note("replied to %d: %d", number, (int)status);
    expect(!status || (status == SHMB_RUNNER_GONE && scenario->mortal));
    if (!status) world.shared[REPLIED] = number;
}

static void answer(shmb_host *h) {
    int64_t key = receive(h);
    int number = read_request(h, key);
    check_order(number);
    reply(h, key, false, number);
}

static void serve(void) {
    shmb_host *h = start_host();
    for (;;) answer(h);
}

/* May wait for a second question and answer that first. */
static void serve_any(void) {
    shmb_host *h = start_host();
    for (;;) {
        int64_t first = receive(h);
        int number = read_request(h, first);
        check_order(number);
        if (number == 101 && explore_choose(2)) answer(h);
        reply(h, first, false, number);
    }
}

/* Keeps what it can, and lets the oldest go at any time. */
static void serve_views(void) {
    shmb_host *h = start_host();
    struct {
        int64_t key;
        int number;
        const void *view;
    } kept[2];
    for (int count = 0;;) {
        int64_t key = receive(h);
        int number = read_request(h, key);
        check_order(number);
        if (count && explore_choose(2)) {
            int32_t x[2];
            explore_read(x, kept->view, sizeof x);
            expect(x[0] == kept->number && x[1] == kept->number);
            shmb_host_release(h, kept->key);
            kept[0] = kept[--count];
        }
        bool keep = !(key & SHMB_KEY_COPY);
        if (keep) {
            expect(count < 2);
            kept[count].key = key;
            kept[count].number = number;
            kept[count++].view = shmb_host_message(h, key)->tensors->data;
        }
        reply(h, key, keep, number);
    }
}

static void serve_and_close(void) {
    shmb_host *h = start_host();
    answer(h);
    world.gone = true;
    shmb_host_close(h);
}

/* ---- The runner ---- */

static void say_nothing(void *context, const char *line) { (void)context, (void)line; }

static shmb_status start_runner(shmb_runner **r, double deadline) {
    shmb_options o = {
        .size = sizeof o, .wait = SHMB_WAIT_BLOCK, .deadline = deadline, .log = say_nothing};
    shmb_status status = shmb_open("shm://x", &o, r);
    explore_note("opened: %d", (int)status);
    return status;
}

static int fill(shmb_runner *r, int question) {
    int number = 100 * explore_thread() + question;
    int32_t x[2] = {number, number};
    shmb_set(r, "x", SHMB_INT32, 1, &(int64_t){2}, x);
    return number;
}

static void check_advice(shmb_runner *r, int number) {
    shmb_tensor t;
    int32_t values[16];
    expect(shmb_advice(r, NULL, &t) == SHMB_OK);
    expect(t.size == (number % 2 ? 16 : 1));
    explore_read(values, t.data, (size_t)t.size * (number % 2 ? 4 : 8));
    for (int i = 0; i < t.size; i++) expect(values[i] == number + 1);
    explore_note("got the advice for %d", number);
}

static shmb_status ask(shmb_runner *r, int question) {
    int number = fill(r, question);
    shmb_status status = shmb_evaluate(r);
    if (!status) check_advice(r, number);
    else explore_note("question %d: %d", number, (int)status);
    return status;
}

static void run(void) {
    shmb_runner *r;
    expect(start_runner(&r, 0) == SHMB_OK);
    for (int q = 1; q <= scenario->messages; q++) expect(ask(r, q) == SHMB_OK);
    shmb_close(r);
}

static void run_in_flight(void) {
    shmb_runner *r;
    expect(start_runner(&r, 0) == SHMB_OK);
    shmb_ticket tickets[2];
    int numbers[2];
    for (int i = 0; i < 2; i++) {
        numbers[i] = fill(r, i + 1);
        tickets[i] = shmb_send(r, SHMB_ANY);
    }
    int first = explore_choose(2);
    for (int i = 0; i < 2; i++) {
        int which = first ^ i;
        expect(shmb_receive(r, tickets[which]) == SHMB_OK);
        check_advice(r, numbers[which]);
    }
    for (int q = 3; q <= scenario->messages; q++) expect(ask(r, q) == SHMB_OK);
    shmb_close(r);
}

/* Some answers come too late. */
static void run_late(void) {
    shmb_runner *r;
    expect(start_runner(&r, 0) == SHMB_OK);
    for (int q = 1; q <= scenario->messages; q++) {
        shmb_set_deadline(r, 0.001);
        shmb_status status = ask(r, q);
        expect(status == SHMB_OK || status == SHMB_TIMEOUT);
    }
    shmb_close(r);
}

/* The host dies or closes: an answer that it gave counts, and then the documented error comes. */
static void run_to_the_end(void) {
    shmb_runner *r;
    shmb_status status = start_runner(&r, 0);
    expect(status == SHMB_OK || (status == SHMB_NO_HOST && world.gone));
    for (int q = 1; q <= scenario->messages && !status; q++) {
        status = ask(r, q);
        expect(!status || (world.gone && world.shared[REPLIED] < 100 + q));
        expect(!status || status == SHMB_HOST_GONE || (status == SHMB_CLOSED && !scenario->mortal));
    }
    shmb_close(r);
}

static void run_and_lie(void) {
    shmb_runner *r;
    expect(start_runner(&r, 0) == SHMB_OK && ask(r, 1) == SHMB_OK);
    fill(r, 2);
    r->want = 99;
    expect(r->kind->start(r) == SHMB_OK);
    int status;
    while ((status = r->kind->proceed(r, INT64_MAX)) == PENDING) continue;
    expect(status == SHMB_CORRUPT && strstr(r->broken.message, "a dtype that does not exist"));
    shmb_close(r);
}

/* ---- An observer ---- */

static void create_only(void) { start_host(); }

static void send_layouts(void) {
    struct error e = {0};
    struct segment s;
    shmb_segment_attach("x", 0, &s, &e);
    struct sender out = {.lane = shmb_segment_lane(&s, 0, REQUEST)};
    shmb_sender_start(&out, 1, 3);
    for (int i = 0; i < scenario->messages; i++) {
        struct builder b = {.error = &e};
        shmb_builder_start(&b, lane_body(&out.lane, 0), 64, sender_guess(&out));
        /* x[1], then x[2], then another header */
        shmb_builder_add(&b, i < 2 ? "x" : "yy", SHMB_INT32, SHMB_TENSOR, 1, &(int64_t){i + 1},
                         NULL);
        b.used = 0;
        expect(shmb_sender_send(&out, &b, 0, &(struct envelope){.sequence = 1}) == SHMB_OK);
        out.free = 3;
        shmb_builder_free(&b);
    }
}

static void observe(void) {
    int64_t count;
    shmb_tensor *t = shmb_inspect_layout(300, 0, false, &count);
    if (!t) return;
    int64_t n = *t->dims;
    explore_note("observes %s[%d]", t->name, (int)n);
    expect(count == 1 && t->rank == 1);
    expect(!strcmp(t->name, "x") ? n == 1 || n == 2 : !strcmp(t->name, "yy") && n == 3);
    free(t);
}

/* Those with few situations first: the controls end with the first that fails. */
const struct scenario scenarios[] = {
    {"closes", "the host closes", {serve_and_close, run_to_the_end}, .messages = 2, .more = 2},
    {"lies", "the host refuses a message", {serve, run_and_lie}, .messages = 2, .more = 2},
    {"observer",
     "shmbridge inspect",
     {create_only, send_layouts, observe},
     .messages = 3,
     .observed = true},
    {"messages", "questions and answers, asleep and awake", {serve, run}, .messages = 3, .more = 2},
    {"views", "a slot that the host keeps", {serve_views, run}, .messages = 3, .more = 2},
    {"host dies",
     "at any step",
     {serve, run_to_the_end},
     .messages = 2,
     .mortal = 1,
     .deaths = 1,
     .more = 2},
    {"runner dies",
     "at any step, and another comes",
     {serve, run, run},
     .messages = 2,
     .mortal = 2,
     .deaths = 1,
     .more = 1},
    {"in flight",
     "two at once, answered in any order",
     {serve_any, run_in_flight},
     .messages = 3,
     .more = 1},
    {"late", "answers after their deadline", {serve, run_late}, .messages = 3, .timeouts = 1},
    {0}};
