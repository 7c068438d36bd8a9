/* The runner that speaks shared memory: "shm://NAME". docs/protocol.md numbers the steps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/runner.h"
#include "segment/attach.h"
#include "segment/channel.h"
#include "segment/names.h"
#include "segment/peer.h"
#include "segment/ring.h"
#include "segment/wait.h"
#include "shmbridge/environment.h"

struct shm {
    struct segment segment;
    uint32_t channel, generation;
    struct runner_line *runner_line;
    struct channel_line *channel_line;
    struct host_line *host_line;
    struct semaphore *bell, *host_bell;
    struct waiter waiter;
    struct sender out;
    struct receiver in;
    struct incoming advice;
    uint64_t owed;  /* the last question that was given up without a reply; 0: none */
    int slot;       /* where the message is being built; -1: in spare, for want of a slot */
    uint8_t *spare; /* private memory of a body's size */
    bool unsent;    /* the message waits for a slot */
    char name[NAME_ROOM];
    struct label label;
};

/* ---- Connect ---- */

static void shm_release(struct shm *s) {
    shmb_sender_free(&s->out);
    shmb_receiver_free(&s->in);
    shmb_segment_detach(&s->segment);
}

#define NO_LOOP                                                                                    \
    "its loop is not running: start it in that program (for request in host, or "                  \
    "host.serve(model))"

static bool is_ready(void *context) {
    const struct shm *s = context;
    return load_relaxed(&s->channel_line->ready) >> 8 == s->generation ||
           load_relaxed(&s->host_line->closed);
}

static shmb_status claim(struct shm *s, struct error *e) {
    uint32_t channels = s->segment.block.channels;
    for (uint32_t i = 0; i < channels; i++) {
        if (!shmb_peer_take(s->segment.fd, CHANNEL_BYTE + (int)i)) {
            if (errno != EAGAIN) return shmb_peer_fail(e);
            continue;
        }
        s->channel = i;
        s->runner_line = shmb_segment_runner_line(&s->segment, i);
        s->channel_line = shmb_segment_channel_line(&s->segment, i);
        /* After both words: a dead runner's claim may say anything, and an old READY must not be
         * taken for ours. */
        uint32_t claimed = (uint32_t)(load_acquire_formal(&s->runner_line->claim) >> 8),
                 ready = (uint32_t)(load_acquire_formal(&s->channel_line->ready) >> 8);
        s->generation = (claimed > ready ? claimed : ready) + 1;
        s->out.lane = shmb_segment_lane(&s->segment, i, REQUEST);
        s->in.lane = shmb_segment_lane(&s->segment, i, REPLY);
        return SHMB_OK;
    }
    return shmb_fail(e, SHMB_BUSY,
                     "all %u channels of the host of \"%s\" are taken: close a runner, or give the "
                     "host more (Host(channels=...), serve --channels)",
                     channels, s->name);
}

/* Publishes the claim and waits until the host has made the channel ready for it. */
static shmb_status announce(struct shm *s, int64_t until, struct error *e) {
    s->bell = &s->channel_line->semaphore;
    s->host_bell = shmb_segment_host_semaphore(&s->segment);
    shmb_waiter_tell(&s->waiter, &s->runner_line->wait_hint);
    s->waiter.peer = &s->host_line->wait_hint;
    s->waiter.host = s->host_line;
    put(&s->runner_line->pid, &(uint32_t){(uint32_t)getpid()}, sizeof(uint32_t));
    put(shmb_segment_label(&s->segment, s->channel), &s->label, sizeof s->label);
    store_relaxed(&s->runner_line->asleep, 0);
    store_release(&s->runner_line->claim, (uint64_t)s->generation << 8 | CLAIMED);
    shmb_semaphore_post(s->host_bell);
    while (!is_ready(s)) {
        enum peer host = shmb_peer_look(s->segment.fd, HOST_BYTE);
        if (host == PEER_UNKNOWN) return shmb_peer_fail(e);
        if (host == PEER_DEAD)
            return shmb_fail(e, SHMB_NO_HOST, "the host of \"%s\" died while this runner connected",
                             s->name);
        int64_t now = shmb_clock_ns();
        if (now >= until)
            return shmb_fail(
                e, SHMB_TIMEOUT,
                "the host of \"%s\" lives but did not accept this runner in time: %s", s->name,
                shmb_peer_look(s->segment.fd, LOOP_BYTE) != PEER_DEAD ? "is its model busy?"
                                                                      : NO_LOOP);
        shmb_waiter_wait(&s->waiter, is_ready, s, &s->runner_line->asleep, s->bell, until);
    }
    uint64_t ready = load_acquire(&s->channel_line->ready);
    if (ready >> 8 != s->generation || (ready & 0xff) != READY)
        return shmb_fail(e, SHMB_NO_HOST, "the host of \"%s\" closed while this runner connected",
                         s->name);
    uint32_t free_slots;
    take_copy(&free_slots, &s->channel_line->free_slots, sizeof free_slots);
    shmb_sender_start(&s->out, s->generation, free_slots);
    shmb_receiver_start(&s->in, s->generation);
    s->waiter.waited = 0; /* from here on for evaluates */
    return sender_slot(&s->out) >= 0
               ? SHMB_OK
               : shmb_fail(e, SHMB_CORRUPT, "the host of \"%s\" gave this runner no slot", s->name);
}

static void read_deadline(shmb_runner *r, const struct shm *s) {
    uint64_t ns = load_relaxed(&s->host_line->deadline);
    if (ns) r->host_deadline_ns = ns < INT64_MAX ? (int64_t)ns : INT64_MAX;
}

/* How many runners a host has, by their locks; UINT32_MAX: it has died or closed. One that is not
 * yet accepted counts most: otherwise a host that hangs, which all runners leave, would get every
 * new one. */
static uint32_t count_runners(const struct segment *segment) {
    if (load_acquire(&shmb_segment_host_line(segment)->closed) ||
        shmb_peer_look(segment->fd, HOST_BYTE) == PEER_DEAD)
        return UINT32_MAX;
    uint32_t runners = 0;
    for (uint32_t i = 0; i < segment->block.channels; i++) {
        if (shmb_peer_look(segment->fd, CHANNEL_BYTE + (int)i) != PEER_ALIVE) continue;
        uint64_t claim = load_acquire(&shmb_segment_runner_line(segment, i)->claim),
                 ready = load_acquire(&shmb_segment_channel_line(segment, i)->ready);
        runners += claim >> 8 == ready >> 8 ? 1 : MAX_CHANNELS;
    }
    return runners;
}

/* Of the hosts that share the name, one with the fewest runners. Those that connect at the same
 * time see the same numbers, so each begins with another worker. */
static uint32_t choose_worker(const struct shm *s, uint32_t workers) {
    uint64_t random = (uint64_t)shmb_clock_ns() ^ (uint64_t)getpid() << 32;
    uint32_t first = (uint32_t)(shmb_random(&random) * workers), best = 0, fewest = UINT32_MAX;
    for (uint32_t i = 0; i < workers && fewest; i++) {
        uint32_t worker = (first + i) % workers, runners;
        struct segment segment;
        struct error ignored = {0};
        if (shmb_segment_attach(s->name, worker, &segment, &ignored)) continue;
        runners = count_runners(&segment);
        shmb_segment_detach(&segment);
        if (runners >= fewest) continue;
        best = worker;
        fewest = runners;
    }
    return best;
}

/* Attaches to the host of the name, or to one of those that share it. */
static shmb_status attach_one(shmb_runner *r, struct shm *s) {
    struct error *e = &r->broken;
    if (shmb_segment_attach(s->name, 0, &s->segment, e)) return e->status;
    s->host_line = shmb_segment_host_line(&s->segment);
    uint32_t workers = load_relaxed(&s->host_line->workers);
    if (workers < 2) return SHMB_OK;
    uint32_t worker = choose_worker(s, workers < MAX_WORKERS ? workers : MAX_WORKERS);
    if (!worker) return SHMB_OK;
    r->present = true; /* another one is, should this one have died meanwhile */
    shmb_segment_detach(&s->segment);
    if (shmb_segment_attach(s->name, worker, &s->segment, e)) return e->status;
    s->host_line = shmb_segment_host_line(&s->segment);
    return SHMB_OK;
}

/* One attempt to connect. NO_HOST and BUSY may go better a little later. */
static shmb_status shm_try_connect(shmb_runner *r, void *state, int64_t until) {
    struct shm *s = state;
    struct error *e = &r->broken;
    if (attach_one(r, s)) return e->status;
    enum peer host = shmb_peer_look(s->segment.fd, HOST_BYTE);
    if (host == PEER_UNKNOWN) shmb_peer_fail(e);
    else if (load_relaxed(&s->host_line->closed) || host == PEER_DEAD)
        shmb_fail(e, SHMB_NO_HOST,
                  "the host of \"%s\" has died and left its segment: start a host again, or run "
                  "shmbridge gc",
                  s->name);
    else {
        r->present = true;
        read_deadline(r, s);
        if (!claim(s, e)) announce(s, until, e);
    }
    if (e->status) shm_release(s);
    return e->status;
}

/* Of a text that is too long the end, where paths differ, from a character's first byte on. */
static void set_label(struct label *label, const char *text) {
    size_t bytes = strlen(text);
    if (bytes > LABEL_BYTES) text += bytes - LABEL_BYTES;
    while (bytes > LABEL_BYTES && (*text & 0xc0) == 0x80) text++;
    label->bytes = (uint32_t)strlen(text);
    memcpy(label->text, text, label->bytes);
}

static shmb_status shm_open_runner(shmb_runner *r, struct url *url, const shmb_options *options) {
    struct error *e = &r->broken;
    char name[NAME_ROOM];
    const char *directory = shmb_url_take(url, "dir");
    if (shmb_url_done(url, "dir, ", e)) return e->status;
    shmb_status status = shmb_bridge_name(url->where, directory, name);
    if (status) return shmb_fail(e, status, "%s", name);
    struct shm *s = calloc(1, sizeof *s);
    if (!s) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    strcpy(s->name, name);
    set_label(&s->label, options->label ? options->label : "");
    shmb_waiter_init(&s->waiter, options->wait);
    status = shmb_runner_try(r, options->connect_timeout, shm_try_connect, s);
    if (status) free(s);
    else {
        r->kind_state = s;
        r->builder.room_option = "request_bytes";
        r->forked = &s->segment.inherited.forked;
        read_deadline(r, s);
    }
    return status;
}

static void shm_close(shmb_runner *r) {
    struct shm *s = r->kind_state;
    if (!s->segment.inherited.forked) {
        store_relaxed(&s->runner_line->claim, (uint64_t)s->generation << 8 | FREE);
        shmb_peer_unlock(s->segment.fd, CHANNEL_BYTE + (int)s->channel);
        shmb_semaphore_post(s->host_bell);
    }
    shm_release(s);
    free(s->spare);
    free(s);
}

/* ---- Ask ---- */

static shmb_status shm_broken(shmb_runner *r, shmb_status status, const char *why) {
    const struct shm *s = r->kind_state;
    return shmb_fail(&r->broken, status, "\"%s\": %s", s->name, why);
}

static __attribute__((noinline)) shmb_status read_failure(const struct shm *s, struct error *e) {
    const struct descriptor *d = &s->advice.d;
    char text[sizeof e->message];
    size_t bytes = d->text < sizeof text ? d->text : sizeof text;
    take_copy(text, s->advice.text, bytes);
    return shmb_fail(e, d->code ? (shmb_status)d->code : SHMB_MODEL, "%.*s", (int)bytes, text);
}

/* What the reply that was taken says: SHMB_OK, or the failure in *e. */
static inline shmb_status read_reply(shmb_runner *r, struct error *e) {
    const struct shm *s = r->kind_state;
    if (s->advice.d.flags & FAILED) return read_failure(s, e);
    const struct layout *l = s->advice.of->layout;
    r->advice_count = l->count;
    r->advice_dtype = l->count ? (shmb_dtype)l->fields->dtype : SHMB_ANY;
    return SHMB_OK;
}

/* A reply to another question than the current one: it has a ticket, or is late. */
static __attribute__((noinline)) int put_by(shmb_runner *r, uint64_t number) {
    struct error why = {0};
    shmb_status status = read_reply(r, &why);
    shmb_ticket_answer(r, number, status, why.message);
    return PENDING;
}

/* Takes one reply: SHMB_OK when it answers the current question, PENDING when it answers another,
 * else the failure. */
static int shm_take_reply(shmb_runner *r) {
    struct shm *s = r->kind_state;
    const char *why;
    if (shmb_receiver_take(&s->in, &s->advice, &why)) return (int)shm_broken(r, SHMB_CORRUPT, why);
    const struct descriptor *d = &s->advice.d;
    if (!sender_returns(&s->out, d->returns))
        return (int)shm_broken(r, SHMB_CORRUPT, "a reply returned slots that were not the host's");
    if (d->code > SHMB_NO_MEMORY)
        return (int)shm_broken(r, SHMB_CORRUPT, "a reply came with a status that does not exist");
    if (d->sequence == s->owed) s->owed = 0;
    if (d->sequence != r->number || s->unsent) return put_by(r, d->sequence);
    return (int)read_reply(r, &r->error);
}

static void shm_begin(shmb_runner *r) {
    struct shm *s = r->kind_state;
    /* the last advice stays readable until evaluate */
    for (int late = 0; late < MAX_SLOTS && !s->out.free && !r->advice && receiver_ready(&s->in);
         late++)
        if (shm_take_reply(r) > SHMB_OK && r->broken.status) {
            shmb_builder_start(&r->builder, NULL, 0, NULL);
            r->stuck = r->broken;
            return;
        }
    s->slot = sender_slot(&s->out);
    if (s->slot < 0 && !s->spare) s->spare = aligned_alloc(ALIGNMENT, s->out.lane.body_bytes);
    uint8_t *body = s->slot >= 0 ? lane_body(&s->out.lane, (uint32_t)s->slot) : s->spare;
    if (!body)
        shmb_fail(&r->stuck, SHMB_NO_MEMORY,
                  "no memory for a request while all slots are with the host");
    shmb_builder_start(&r->builder, body, body ? s->out.lane.body_bytes : 0, sender_guess(&s->out));
}

static shmb_status send_request(shmb_runner *r) {
    struct shm *s = r->kind_state;
    struct envelope e = {.sequence = r->number,
                         .returns = s->in.ours,
                         .code = (uint8_t)r->want,
                         .flags = r->bound ? BOUND : 0};
    s->unsent = false; /* nor is it sent later, where that fails */
    if (r->bound) r->builder.guess = sender_guess(&s->out); /* the same fields every time */
    if (shmb_sender_send(&s->out, &r->builder, s->slot, &e)) {
        r->error = r->stuck;
        return r->error.status;
    }
    s->in.ours = 0;
    if (r->number % ASKED_EVERY == 0)
        store_relaxed(&s->runner_line->wait_hint.since, (uint64_t)shmb_clock_ns());
    shmb_waiter_wake(&s->host_line->asleep, s->host_bell);
    return SHMB_OK;
}

static bool slot_is_ours(struct shm *s, bool bound) {
    if (bound) return s->out.free >> s->slot & 1;
    if (s->slot < 0) s->slot = sender_slot(&s->out);
    return s->slot >= 0;
}

static shmb_status shm_start(shmb_runner *r) {
    struct shm *s = r->kind_state;
    s->unsent = true;
    return slot_is_ours(s, r->bound) ? send_request(r) : SHMB_OK;
}

static bool shm_sent(const shmb_runner *r) { return !((const struct shm *)r->kind_state)->unsent; }

static bool has_reply(void *context) { return receiver_ready(&((const struct shm *)context)->in); }

/* Nothing came: is the other side still there? */
static int look_around(shmb_runner *r) {
    struct shm *s = r->kind_state;
    uint64_t ready = load_acquire(&s->channel_line->ready);
    if (ready == ((uint64_t)s->generation << 8 | POISONED)) {
        char reason[REASON_BYTES + 1];
        uint32_t bytes;
        take_copy(&bytes, &s->channel_line->reason_bytes, sizeof bytes);
        if (bytes > REASON_BYTES) bytes = REASON_BYTES;
        take_copy(reason, s->channel_line->reason, bytes);
        reason[bytes] = 0;
        return (int)shm_broken(r, SHMB_CORRUPT, reason);
    }
    if (load_relaxed(&s->runner_line->claim) >> 8 != s->generation)
        return (int)shm_broken(r, SHMB_CLOSED,
                               "another runner has this channel: something closed this one's "
                               "files, and with them its lock");
    if (load_acquire(&s->host_line->closed))
        return (int)shm_broken(r, SHMB_CLOSED, "the host has closed the bridge");
    enum peer host = shmb_peer_look(s->segment.fd, HOST_BYTE);
    if (host == PEER_UNKNOWN) return (int)shmb_peer_fail(&r->broken);
    if (host == PEER_DEAD)
        return (int)shm_broken(
            r, SHMB_HOST_GONE,
            "the host has died; close this runner and open another once a host is back");
    return PENDING;
}

static int shm_proceed(shmb_runner *r, int64_t until) {
    struct shm *s = r->kind_state;
    for (int status = PENDING;;) {
        int late = 0;
        /* no host owes more late replies */
        for (; receiver_ready(&s->in) && late < MAX_SLOTS; late++)
            if ((status = shm_take_reply(r)) != PENDING) return status;
        if (s->unsent && slot_is_ours(s, r->bound) && send_request(r)) return (int)r->error.status;
        /* who calls looks at the deadline and for interrupts, though late replies may never end */
        if (late) return PENDING;
        enum waited waited = shmb_waiter_wait(&s->waiter, has_reply, s, &s->runner_line->asleep,
                                              s->bell, earlier(until, shmb_runner_until(r)));
        r->waited_ns = s->waiter.waited;
        if (waited <= WOKEN) continue;
        status = look_around(r);
        if (!receiver_ready(&s->in)) return status;
        r->broken.status = SHMB_OK; /* a reply that was sent before the end still counts */
        status = PENDING;
    }
}

static void shm_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct shm *s = r->kind_state;
    shmb_incoming_tensor(&s->advice, index, out);
}

static void shm_abandon(shmb_runner *r) {
    struct shm *s = r->kind_state;
    if (!s->unsent) s->owed = r->number;
    r->number = 0; /* a late reply answers another question */
    s->unsent = false;
}

static const char *shm_asks_again(shmb_runner *r) {
    struct shm *s = r->kind_state;
    for (int late = 0; late < MAX_SLOTS && s->owed && receiver_ready(&s->in); late++)
        if (shm_take_reply(r) > SHMB_OK) return NULL;
    return s->owed && look_around(r) == PENDING ? WHEN_IT_ANSWERS : NULL;
}

static const char *shm_why_late(const shmb_runner *r) {
    const struct shm *s = r->kind_state;
    return shmb_peer_look(s->segment.fd, LOOP_BYTE) != PEER_DEAD ? NULL
                                                                 : "the host lives, but " NO_LOOP;
}

const struct runner_ops shmb_shm_runner = {.scheme = "shm",
                                           .open = shm_open_runner,
                                           .begin = shm_begin,
                                           .start = shm_start,
                                           .sent = shm_sent,
                                           .proceed = shm_proceed,
                                           .advice = shm_advice,
                                           .abandon = shm_abandon,
                                           .asks_again = shm_asks_again,
                                           .close = shm_close,
                                           .why_late = shm_why_late};
