/* libFuzzer: ML-Compiler-Bridge's frames of any bytes. First byte even: a compiler sends them, and
 * the host's side reads them; odd: a host sends them, and a runner reads them. */
#include "../c/kinds.h"
#include "../c/pipes.h"
#include "runner/default.h"
#include "runner/protocol.h"
#include "runner/runner.h"
#include "serdes/serdes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 160 };

static const char *const serdes[] = {"bitstream", "json", "flatbuffers", "raw"};
static const uint8_t *at, *end;
static volatile uint8_t sum;

static uint8_t next8(void) { return at < end ? *at++ : 0; }

/* A frame, whose length is true or at an edge, into to[FRAME_HEAD + 255]. Returns its size. */
static size_t frame(uint8_t *to) {
    static const uint64_t edges[] = {0,          LIMIT + 1,        LONGEST_FAILURE + 1,
                                     1ull << 48, (1ull << 48) + 1, UINT64_MAX,
                                     1ull << 63, 1ull << 62};
    uint8_t how = next8(), n = next8();
    if (n > end - at) n = (uint8_t)(end - at);
    uint64_t length = n | (how & 1 ? frame_failed : 0) | (how & 2 ? frame_typed : 0);
    if (how & 4) length = edges[how >> 4 & 7];
    memcpy(to, &length, sizeof length);
    memcpy(to + FRAME_HEAD, at, n);
    at += n;
    return FRAME_HEAD + (size_t)n - (how & 8 ? 1 : 0);
}

static void read_tensor(const shmb_tensor *t) {
    const uint8_t *data = t->data;
    for (size_t i = 0, n = (size_t)t->size * shmb_dtype_size(t->dtype); i < n; i++) sum += data[i];
    if (t->offsets) CHECK(t->offsets[0] == 0 && t->offsets[t->dims[0]] == t->dims[1]);
}

/* ---- The host's side ---- */

/* Sends every feature back. */
static ANSWERS(echo) {
    (void)state, (void)want, (void)deadline;
    if (!count) return shmb_sink_fail(advice, SHMB_MODEL, "no features");
    for (int64_t i = 0; i < count; i++) {
        const shmb_tensor *t = &features[i];
        int64_t *offsets = NULL;
        read_tensor(t);
        void *to = shmb_sink_field(advice, t->name, t->dtype, t->kind, t->rank, t->dims, &offsets);
        if (!to) return SHMB_NO_MEMORY;
        if (t->offsets) memcpy(offsets, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *offsets);
        if (t->size) memcpy(to, t->data, (size_t)t->size * shmb_dtype_size(t->dtype));
    }
    return SHMB_OK;
}

static int feed(void *state, shmb_runner *r, struct bytes *in, shmb_dtype *want) {
    struct error e = {0};
    size_t used = 0;
    uint8_t *exact = malloc(in->size);
    CHECK(exact);
    memcpy(exact, in->data, in->size);
    int got = shmb_frames_protocol.feed(state, exact, in->size, &used, r, want, &e);
    free(exact); /* nothing of it is kept */
    CHECK(used <= in->size && (got == MORE || got == ASK || (got == (int)e.status && *e.message)));
    in->size -= used;
    memmove(in->data, in->data + used, in->size);
    return got == MORE && used ? feed(state, r, in, want) : got;
}

static void check_answer(const struct bytes *answer) {
    CHECK(answer->size >= FRAME_HEAD &&
          (frame_length(answer->data) & ~(frame_failed | frame_typed)) ==
              answer->size - FRAME_HEAD);
}

static void compiler_sends(uint8_t how) {
    static shmb_runner *runner;
    if (!runner) {
        kind_register("echo", echo);
        CHECK(shmb_register_serdes(&raw_serdes) == SHMB_OK);
        runner = runner_open("echo://");
    }
    shmb_runner *r = how & 8 ? NULL : runner;
    struct error e = {0};
    struct bytes in = {0}, answer = {0};
    void *state = shmb_frames_new(shmb_serdes_find(serdes[how >> 1 & 3]), LIMIT);
    CHECK(state);
    if (how & 16) shmb_frames_set_default(state, "1", how & 32 ? SHMB_INT64 : SHMB_ANY, "fuzz", &e);
    shmb_conversation_info info;
    for (int got = MORE; at < end && (got == MORE || got == ASK);) {
        shmb_dtype want = SHMB_ANY;
        uint8_t *to = shmb_bytes_add(&in, FRAME_HEAD + 255);
        in.size = (size_t)(to - in.data) + frame(to);
        while ((got = feed(state, r, &in, &want)) == ASK) {
            answer.size = 0;
            shmb_status status = r ? shmb_evaluate_as(r, want) : SHMB_NO_HOST;
            CHECK(shmb_frames_protocol.answer(state, r, status, &answer) == SHMB_OK);
            check_answer(&answer);
        }
        if (how & 64) shmb_frames_protocol.end(state);
    }
    if (r) shmb_discard(r);
    info = counted_in(state);
    CHECK(info.defaulted <= info.asked);
    shmb_bytes_free(&in);
    shmb_bytes_free(&answer);
    shmb_frames_protocol.free(state);
}

/* ---- The runner's side ---- */

static struct pipes p;

static void remove_pipes(void) { pipes_remove(&p); }

static void set_up(void) {
    pipes_make(&p, "");
    p.to = open(pipes_name(&p, "in"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    p.from = open(pipes_name(&p, "out"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    CHECK(p.to >= 0 && p.from >= 0);
    atexit(remove_pipes);
}

static void drain(int fd) {
    uint8_t bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0) continue;
}

/* Evaluates with no time to wait, and reads what came to its last byte. */
static void ask(shmb_runner *r, shmb_dtype want) {
    shmb_tensor t;
    uint8_t bytes[FRAME_HEAD + 255];
    size_t n = frame(bytes);
    pipes_fill(r, "x");
    if (shmb_runner_start(r, want)) return;
    CHECK(write(p.to, bytes, n) == (ssize_t)n);
    r->began = 1; /* else until is computed */
    r->until = 0;
    int status = shmb_runner_continue(r);
    CHECK(status >= SHMB_OK && status <= SHMB_NO_MEMORY);
    CHECK(status == SHMB_OK || shmb_advice_count(r) == 0);
    for (int64_t i = 0; i < shmb_advice_count(r); i++) {
        CHECK(shmb_advice_at(r, i, &t) == SHMB_OK);
        read_tensor(&t);
    }
}

static void host_sends(uint8_t how) {
    char url[128];
    shmb_options options = {.size = sizeof options, .log = shmb_say_nothing};
    shmb_runner *r;
    if (!*p.path) set_up();
    snprintf(url, sizeof url, "pipe://%s?serdes=%s", p.path, serdes[how >> 1 & 3]);
    CHECK(shmb_open(url, &options, &r) == SHMB_OK);
    while (at < end && !r->broken.status) {
        ask(r, how & 8 ? (shmb_dtype)(next8() % (SHMB_BFLOAT16 + 1)) : SHMB_ANY);
        drain(p.from);
        if (how & 16) r->asks_from = 0; /* else it stops asking after a late answer */
    }
    shmb_close(r);
    drain(p.from);
    drain(p.to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return -1;
    at = data + 1;
    end = data + size;
    if (*data & 1) host_sends(*data);
    else compiler_sends(*data);
    return 0;
}
