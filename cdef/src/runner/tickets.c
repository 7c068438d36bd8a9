/* Questions that were sent and not yet received: shmb_send and shmb_receive. A kind that has one
 * question at a time answers it while it is sent. */
#include <stdlib.h>
#include <string.h>

#include "runner/runner.h"

enum {
    PLACE_AT = 48,      /* a ticket is its question's number, and above that its place */
    MAX_OPEN = 1 << 15, /* so that a ticket is not negative */
    FIRST_ROOM = 16
};

struct sent {
    uint64_t ticket; /* 0: this place is free */
    int64_t began, until;
    uint8_t *advice; /* or why there is none, in private memory; NULL while it is PENDING */
    int status;
    uint32_t count, next; /* of the advice; the next free place */
    shmb_dtype want;
    bool untyped;
};

struct tickets {
    struct sent *places; /* place 0 is nobody's */
    uint32_t room, free; /* free: the first place; 0: none */
    uint8_t *received;   /* the advice of the last receive, if it was copied */
};

static void free_tickets(struct tickets *t) {
    for (uint32_t i = 1; i < t->room; i++)
        if (t->places[i].ticket) free(t->places[i].advice);
    free(t->places);
    free(t->received);
    free(t);
}

/* ---- Places ---- */

static struct sent *find(const shmb_runner *r, uint64_t ticket) {
    const struct tickets *t = r->tickets;
    uint64_t place = ticket >> PLACE_AT;
    return t && place && place < t->room && t->places[place].ticket == ticket ? &t->places[place]
                                                                              : NULL;
}

static void give_back(struct tickets *t, struct sent *q) {
    q->ticket = 0;
    q->next = t->free;
    t->free = (uint32_t)(q - t->places);
}

static void drop(shmb_runner *r, uint64_t number) {
    struct sent *q = find(r, number);
    if (q) give_back(r->tickets, q);
}

static bool grow(struct tickets *t) {
    uint32_t room = t->room ? 2 * t->room : FIRST_ROOM, first = t->room ? t->room : 1;
    struct sent *places = room <= MAX_OPEN ? realloc(t->places, room * sizeof *places) : NULL;
    if (!places) return false;
    for (uint32_t i = first; i < room; i++)
        places[i] = (struct sent){.next = i + 1 < room ? i + 1 : 0};
    t->places = places;
    t->room = room;
    t->free = first;
    return true;
}

/* A free place; 0: there is no memory, or too much is open. */
static uint32_t take_place(shmb_runner *r) {
    if (!r->tickets) r->tickets = calloc(1, sizeof *r->tickets);
    struct tickets *t = r->tickets;
    r->drop_ticket = drop;
    r->free_tickets = free_tickets;
    if (!t || (!t->free && !grow(t))) return 0;
    uint32_t place = t->free;
    t->free = t->places[place].next;
    return place;
}

/* ---- Answers ---- */

/* Copies bytes into memory at *at; only counts them where memory is NULL. */
static const void *lay(uint8_t *memory, size_t *at, const void *from, size_t bytes) {
    *at = (*at + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    uint8_t *to = memory ? memory + *at : NULL;
    if (to && bytes) take_copy(to, from, bytes);
    *at += bytes;
    return to;
}

/* The kind's advice as tensors, and behind them what they point to. Returns its size. */
static size_t copy_advice(shmb_runner *r, uint8_t *memory) {
    size_t at = r->advice_count * sizeof(shmb_tensor);
    for (uint32_t i = 0; i < r->advice_count; i++) {
        shmb_tensor t;
        r->kind->advice(r, i, &t);
        size_t list = t.offsets ? (size_t)t.dims[0] + 1 : 0, dims = (size_t)t.rank + (list ? 1 : 0);
        t.name = lay(memory, &at, t.name, strlen(t.name) + 1);
        t.dims = lay(memory, &at, t.dims, dims * sizeof *t.dims);
        if (list) t.offsets = lay(memory, &at, t.offsets, list * sizeof *t.offsets);
        t.data = lay(memory, &at, t.data, (size_t)t.size * shmb_dtype_size(t.dtype));
        if (memory) ((shmb_tensor *)memory)[i] = t;
    }
    return (at + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

void shmb_ticket_answer(shmb_runner *r, uint64_t number, shmb_status status, const char *why) {
    struct sent *q = find(r, number);
    if (!q || q->status != PENDING) return;
    q->status = (int)status;
    q->untyped = r->untyped;
    q->count = status ? 0 : r->advice_count;
    if (status) q->advice = (uint8_t *)strdup(why);
    else if ((q->advice = aligned_alloc(ALIGNMENT, copy_advice(r, NULL) + ALIGNMENT)))
        copy_advice(r, q->advice);
    else q->status = SHMB_NO_MEMORY;
}

static void read_copied(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    *out = ((const shmb_tensor *)r->tickets->received)[index];
}

/* ---- Send ---- */

shmb_ticket shmb_send_start(shmb_runner *r, shmb_dtype want) {
    if (!r) return 0;
    shmb_runner_begin(r);
    if (load_relaxed(&r->asking)) return 0;
    uint32_t place = take_place(r);
    if (!place && !r->stuck.status)
        shmb_fail(&r->stuck, SHMB_NO_MEMORY, "no room for a ticket: receive those that are open");
    shmb_status status = shmb_runner_ask(r, want, (uint64_t)place << PLACE_AT);
    if (!place) {
        shmb_discard(r);
        return 0;
    }
    r->tickets->places[place] = (struct sent){.ticket = r->number, .status = PENDING, .want = want};
    if (status) shmb_ticket_answer(r, r->number, status, r->error.message);
    return (shmb_ticket)r->tickets->places[place].ticket;
}

int shmb_send_continue(shmb_runner *r, shmb_ticket ticket) {
    struct sent *q = r ? find(r, (uint64_t)ticket) : NULL;
    if (!q) return SHMB_OK; /* perhaps since another thread asks: the message is its */
    if (load_relaxed(&r->asking)) {
        if (r->kind->sent && !r->bound && r->kind->sent(r)) {
            q->until = shmb_runner_until(r);
            set_asking(r, false);
            r->number = 0; /* nobody waits for it now */
        } else {
            int status = shmb_runner_look(r, INT64_MAX);
            if (status == PENDING) return PENDING;
            shmb_ticket_answer(r, (uint64_t)ticket, (shmb_status)status, r->error.message);
        }
        q->began = r->began;
    }
    shmb_discard(r);
    return SHMB_OK;
}

shmb_ticket shmb_send(shmb_runner *r, shmb_dtype want) {
    shmb_ticket ticket = shmb_send_start(r, want);
    while (shmb_send_continue(r, ticket) == PENDING) continue;
    return ticket;
}

/* ---- Receive ---- */

static int resume(shmb_runner *r, struct sent *q) {
    struct tickets *t = r->tickets;
    struct sent its = *q;
    give_back(t, q);
    r->number = its.ticket;
    r->want = its.want;
    r->began = its.began;
    r->until = its.until;
    if (its.status == PENDING) {
        if (r->broken.status) return (int)shmb_runner_failed(r, r->broken.status);
        set_asking(r, true);
        return PENDING;
    }
    free(t->received);
    t->received = its.advice;
    r->untyped = its.untyped;
    r->advice_count = its.count;
    if (its.status) {
        const char *why = its.advice ? (const char *)its.advice : shmb_strerror(SHMB_NO_MEMORY);
        return (int)shmb_runner_failed(r, shmb_fail(&r->error, (shmb_status)its.status, "%s", why));
    }
    if (its.count) r->advice_dtype = ((const shmb_tensor *)its.advice)->dtype;
    return (int)shmb_runner_end(r, SHMB_OK, read_copied);
}

int shmb_receive_start(shmb_runner *r, shmb_ticket ticket) {
    if (!r) return (int)shmb_runner_none();
    if (!shmb_runner_alone(r)) return (int)r->broken.status;
    r->advice = NULL;
    if (*r->forked) return (int)shmb_runner_failed(r, shmb_runner_inherited(&r->error));
    struct sent *q = find(r, (uint64_t)ticket);
    if (q) return resume(r, q);
    shmb_status status = r->broken.status;
    if (!status)
        status = shmb_fail(&r->error, SHMB_INVALID,
                           "ticket %lld is not open: receive what shmb_send returned, once, while "
                           "at most %d are open",
                           (long long)ticket, MAX_OPEN - 1);
    return (int)shmb_runner_failed(r, status);
}

int shmb_receive_continue(shmb_runner *r) {
    int status = shmb_runner_look(r, INT64_MAX);
    return status == PENDING ? PENDING : (int)shmb_runner_end(r, status, r->kind->advice);
}

shmb_status shmb_receive(shmb_runner *r, shmb_ticket ticket) {
    int status = shmb_receive_start(r, ticket);
    while (status == PENDING) status = shmb_receive_continue(r);
    return (shmb_status)status;
}
