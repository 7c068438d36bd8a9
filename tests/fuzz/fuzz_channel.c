/* Whatever the other side writes into a channel, host and runner stay inside the segment and say
 * what is wrong: first byte even: the runner's side is fuzzed and the host reads; odd: the other
 * way round. Nothing waits. */
#include "../c/bridge.h"
#include "message/header.h"
/* for struct shm: the runner is set back between inputs without being opened again */
#include "runner/shm.c"
#include "segment/peer.h"
#include "segment/ring.h"

enum { KEYS = 8 };

static struct bridge b;
static struct segment raw; /* what the fuzzer writes through */
static shmb_runner *r;
static uint32_t generation;
static shmb_ticket tickets[4];

static const uint8_t *at, *end;
static uint8_t next8(void) { return at < end ? *at++ : 0; }
static uint64_t next(int bytes) {
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (uint64_t)next8() << 8 * i;
    return n;
}
/* A number that is likely to be at an edge. */
static int64_t edge(void) {
    static const int64_t edges[] = {
        0, 1, 2, 3, 4, 7, 8, 32, 64, 512, 1024, 4096, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, -1};
    uint8_t n = next8();
    return n < sizeof edges / sizeof *edges ? edges[n] : n < 0xf0 ? n - 17 : (int64_t)next(8);
}

static void setup(void) {
    shmb_plan plan = {.channels = 1,
                      .slots = 2,
                      .header_bytes = 512,
                      .request_bytes = 4096,
                      .advice_bytes = 1024};
    bridge_open(&b, "fuzz", plan, SHMB_WAIT_SPIN);
    r = bridge_connect(&b, "wait=spin");
    raw = bridge_segment(&b);
    bridge_clean(b.name);
    /* the runner's lock keeps the channel claimed for good */
    generation = ((struct shm *)r->kind_state)->generation;
}

/* ---- What a liar writes ---- */

/* A header of fields that the input chooses, and dims behind it; or just bytes. Returns the
 * header's size. */
static uint32_t write_meta(struct lane *l, uint32_t slot) {
    static char names[4][8];
    struct field fields[4];
    uint8_t *meta = lane_meta(l, slot), kind = next8();
    uint32_t count = kind & 3, dims = 0;
    if (kind & 0x80) {
        for (int i = next8(); i > 0; i--) meta[next(2) % l->meta_bytes] = next8();
        return (uint32_t)edge();
    }
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "f%u", next8() & 31);
        fields[i] = (struct field){.name = names[i],
                                   .name_bytes = (uint32_t)strlen(names[i]),
                                   .dtype = next8() % 15,
                                   .kind = next8() % 5,
                                   .rank = next8() % 10};
        dims += field_dims(&fields[i]);
    }
    _Alignas(8) uint8_t header[512];
    uint32_t size = (uint32_t)shmb_header_write(fields, count, header, sizeof header);
    memcpy(meta, header, size);
    int64_t *to = (int64_t *)(meta + (kind & 0x40 ? 0 : (size + 7) / 8 * 8));
    for (uint32_t i = 0; i < dims && (uint8_t *)(to + i + 1) <= meta + l->meta_bytes; i++)
        to[i] = edge();
    return size;
}

static void write_body(struct lane *l, uint32_t slot) {
    int64_t *to = (int64_t *)(lane_body(l, slot) + next8() % 8 * ALIGNMENT);
    for (int i = next8() % 8; i > 0; i--) *to++ = edge();
}

static void write_descriptor(struct lane *l, uint64_t position, uint64_t sequence, uint32_t owned) {
    uint32_t flags = next8(), slot = next8();
    struct descriptor d = {.sequence = flags & 0x80 ? (uint64_t)edge() : sequence,
                           .generation = flags & 0x40 ? (uint32_t)edge() : generation,
                           .returns = flags & 0x20 ? (uint32_t)next(4) : owned,
                           .layout = next8() % 20,
                           .slot = slot < 200   ? slot % 2
                                   : slot < 220 ? NO_SLOT
                                                : (uint8_t)slot,
                           .flags = next8() & (flags & 0x10 ? 0xff : ALL_FLAGS),
                           .code = next8() % 24,
                           .text = (uint16_t)next(2)};
    uint32_t size =
        d.flags & (NEW | DIMS) && d.slot < l->count ? write_meta(l, d.slot) : (uint32_t)next(4);
    if (d.slot < l->count) write_body(l, d.slot);
    for (int i = 0; i < INLINE_BYTES; i++) d.data[i] = (uint8_t)(size * (uint32_t)i);
    memcpy(d.data, &size, sizeof size);
    ring_push(l->ring, l->count, position, &d);
}

static volatile uint8_t sum;

/* Reads a tensor to its last byte, which must lie in the segment (or, advice only, in the
 * descriptor's copy). */
static void read_tensor(const shmb_tensor *t, const uint8_t *base, size_t bytes) {
    size_t size = (size_t)t->size * shmb_dtype_size(t->dtype);
    const uint8_t *data = t->data;
    CHECK(size == 0 || (data >= base && size <= bytes && (size_t)(data - base) <= bytes - size));
    for (size_t i = 0; i < size; i++) sum += data[i];
    for (const char *c = t->name; *c; c++) sum += (uint8_t)*c;
    if (!t->offsets) return;
    CHECK(t->offsets[0] == 0 && t->offsets[t->dims[0]] == t->dims[1]);
    for (int64_t i = 0; i < t->dims[0]; i++) CHECK(t->offsets[i] <= t->offsets[i + 1]);
}

/* ---- The host reads ---- */

static void reply(int64_t key, uint8_t how) {
    bool keep = how & 0x80;
    int64_t dims[MAX_DIMS] = {how & 3, how & 7, 1}, values[32] = {0};
    shmb_tensor a = {.name = how & 8 ? "a" : "b",
                     .dtype = SHMB_INT32,
                     .rank = how >> 6,
                     .size = 1,
                     .dims = dims,
                     .data = values},
                c = {.name = "c",
                     .dtype = SHMB_UINT8,
                     .kind = SHMB_STRING,
                     .rank = 1,
                     .size = *dims,
                     .dims = dims,
                     .data = values};
    switch (how % 5) {
    case 0: reply_i64(b.host, key, keep, edge()); break;
    case 1: reply_f64(b.host, key, keep, (double)edge() / 2); break;
    case 2:
        shmb_host_reply_error(b.host, key, keep, SHMB_MODEL, (const char *)raw.base, next(1));
        break;
    case 3:
        for (int i = 0; i < how >> 6; i++) a.size *= dims[i];
        shmb_host_reply(b.host, key, keep, (shmb_tensor[]){a, c}, 2);
        break;
    default: shmb_host_release(b.host, key);
    }
}

static void fuzz_runner_side(void) {
    struct runner_line *line = shmb_segment_runner_line(&raw, 0);
    struct lane l = shmb_segment_lane(&raw, 0, REQUEST),
                replies = shmb_segment_lane(&raw, 0, REPLY);
    const shmb_message *m;
    int64_t keys[KEYS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    uint64_t position = 0;
    int count = 0;
    atomic_store(&line->claim, (uint64_t)++generation << 8 | CLAIMED);
    while (shmb_host_receive(b.host, 0) >= 0) continue; /* what the input before this one left */
    while (at < end) {
        uint8_t op = next8();
        switch (op % 8) {
        case 0:
        case 1:
        case 2: write_descriptor(&l, position, next8(), 0); /* fallthrough */
        case 3: {
            int64_t key = shmb_host_receive(b.host, 0);
            if (key < 0) break;
            position++;
            keys[count++ % KEYS] = key;
            CHECK((m = shmb_host_message(b.host, key)) && m->body_bytes <= l.body_bytes);
            for (int64_t i = 0; i < m->count; i++)
                read_tensor(&m->tensors[i], m->body, l.body_bytes);
            break;
        }
        case 4:
        case 5: reply(keys[op >> 3 & (KEYS - 1)], next8()); break;
        case 6:
            if (op & 8) atomic_store(&line->claim, (uint64_t)++generation << 8 | (op >> 4 & 3));
            else atomic_store(&line->claim, next(8));
            generation = (uint32_t)(atomic_load(&line->claim) >> 8);
            position = 0;
            break;
        default: /* the sender of the replies is disturbed, too */
            replies.ring[op >> 3 & 1].sequence = next(8);
            atomic_store(&replies.ring[op >> 4 & 1].stamp, next(1));
            atomic_store(&line->asleep, op >> 5);
            atomic_store(&shmb_segment_host_semaphore(&raw)->count, (uint32_t)next(4));
            atomic_store(&shmb_segment_channel_line(&raw, 0)->semaphore.count, (uint32_t)next(4));
        }
    }
    for (int i = 0; i < KEYS; i++) {
        reply_i64(b.host, keys[i], false, 0);
        shmb_host_release(b.host, keys[i]);
    }
}

/* ---- The runner reads ---- */

static void set_back(struct shm *s, struct channel_line *line) {
    memset(s->out.lane.ring, 0, 2 * sizeof *s->out.lane.ring);
    memset(s->in.lane.ring, 0, 2 * sizeof *s->in.lane.ring);
    shmb_discard(r);
    r->advice = NULL;
    r->error = r->stuck = r->broken = (struct error){0};
    s->generation = ++generation;
    s->unsent = false;
    s->owed = 0;
    r->asks_from = 0;
    if (r->tickets) r->free_tickets(r->tickets);
    r->tickets = NULL;
    memset(tickets, 0, sizeof tickets);
    shmb_sender_start(&s->out, generation, 3);
    shmb_receiver_start(&s->in, generation);
    atomic_store(&s->runner_line->claim, (uint64_t)generation << 8 | CLAIMED);
    atomic_store(&line->ready, (uint64_t)generation << 8 | READY);
    atomic_store(&s->host_line->closed, 0);
}

static void fill(uint8_t how) {
    if (how & 1) shmb_set_i64(r, "x", 1);
    if (how & 2) shmb_set_strings(r, "texts", 2, (const char *const[]){"a", "bc"}, NULL);
    if (how & 4) shmb_feature_f32(r, "v", how);
    if (how & 8)
        shmb_feature_ragged(r, "l", SHMB_INT8, 2, (const int64_t[]){1, how}, 2,
                            (const int64_t[]){3});
}

static void read_advice(struct shm *s) {
    shmb_tensor t;
    bool in_slot = s->advice.d.slot != NO_SLOT;
    const uint8_t *base = in_slot ? lane_body(&s->in.lane, s->advice.d.slot) : s->advice.d.data;
    for (int64_t i = 0; i < shmb_advice_count(r); i++) {
        CHECK(shmb_advice_at(r, i, &t) == SHMB_OK);
        read_tensor(&t, base, in_slot ? s->in.lane.body_bytes : INLINE_BYTES);
    }
    shmb_advice(r, "x", &t);
}

/* The question's deadline is over. */
static void do_not_wait(void) {
    r->began = 1; /* else until is computed */
    r->until = 0;
}

/* The answer of a ticket, if it has come. A copy is read to its ends. */
static void receive(struct shm *s, shmb_ticket ticket) {
    shmb_tensor t;
    int status = shmb_receive_start(r, ticket);
    bool copied = status != PENDING;
    do_not_wait();
    if (!copied) status = shmb_receive_continue(r);
    CHECK(status >= SHMB_OK && status <= SHMB_NO_MEMORY);
    if (status == SHMB_OK && !copied) read_advice(s);
    for (int64_t i = 0; i < shmb_advice_count(r); i++) {
        CHECK(shmb_advice_at(r, i, &t) == SHMB_OK);
        size_t bytes = (size_t)t.size * shmb_dtype_size(t.dtype);
        if (copied && bytes) (void)((const volatile uint8_t *)t.data)[bytes - 1];
        if (copied && t.offsets) CHECK(t.offsets[t.dims[0]] == t.dims[1]);
    }
    r->advice = NULL;
}

static void fuzz_host_side(void) {
    struct shm *s = r->kind_state;
    struct channel_line *line = shmb_segment_channel_line(&raw, 0);
    struct lane l = shmb_segment_lane(&raw, 0, REPLY);
    set_back(s, line);
    uint64_t position = 0;
    while (at < end && !r->broken.status) {
        uint8_t op = next8();
        uint8_t how = next8();
        fill(how);
        if (how & 0x10) r->asks_from = 0; /* else it stops asking after a late answer */
        read_advice(s);
        if (op & 0x40 && s->out.free) tickets[op >> 1 & 3] = shmb_send(r, SHMB_ANY);
        if (shmb_runner_start(r, op & 1 ? (shmb_dtype)(op >> 4) % 14 : SHMB_ANY)) continue;
        for (int i = op >> 1 & 3; i > 0; i--) {
            uint8_t to = next8();
            write_descriptor(&l, position++,
                             to & 2 ? (uint64_t)tickets[to >> 2 & 3] : r->number - (to & 1),
                             1u << (next8() & 1));
        }
        if (op & 8) {
            atomic_store(&line->ready, (uint64_t)generation << 8 | next8());
            line->reason_bytes = (uint32_t)edge();
            for (int i = 0; i < 16; i++) line->reason[i] = (char)next8();
            atomic_store(&s->host_line->closed, next8() & 1);
            atomic_store(&line->semaphore.count, (uint32_t)edge());
            atomic_store(&s->host_bell->count, (uint32_t)edge());
        }
        do_not_wait();
        int status = shmb_runner_continue(r);
        CHECK(status >= SHMB_OK && status <= SHMB_NO_MEMORY);
        if (status == SHMB_OK) read_advice(s);
        else CHECK(shmb_advice_count(r) == 0);
        if (op & 0x20 && !r->broken.status) receive(s, tickets[next8() & 3]);
        position = s->in.position;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!r) setup();
    if (size < 2) return -1;
    at = data + 1;
    end = data + size;
    if (*data & 1) fuzz_host_side();
    else fuzz_runner_side();
    return 0;
}
