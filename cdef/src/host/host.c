#include "host/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/host_channel.h"
#include "segment/attach.h"
#include "segment/peer.h"
#include "segment/wait.h"

enum {
    /* about 100 us: a runner that sleeps needs as long to wake and ask again */
    LOOKS_PER_POLL = 2000,
    LOOKS_PER_CROWDED_POLL = 64, /* a runner that runs asks again within a microsecond */
    LOOKS_PER_CLAIMS = 64,       /* spinning looks between looks at the claims */
    RECEIVES_PER_UPKEEP = 1024,  /* a busy host looks after claims and the dead all the same */
};

struct shmb_host {
    struct segment segment;
    struct host_line *line;
    struct semaphore *bell;
    struct waiter waiter;
    struct channel *channels;
    uint32_t count;
    uint16_t active[MAX_CHANNELS]; /* the ready channels, in order */
    uint32_t active_count, next;   /* next: where the next look begins, to be fair */
    uint32_t found;                /* by the last look */
    uint32_t looks;
    _Atomic uint32_t received; /* our own count: runners can write to the segment's */
    int64_t upkeep;            /* when the dead were last looked for */
    _Atomic int woken;
    _Atomic bool closed;
    bool looping; /* somebody receives; the receiver's own */
    struct error error;
};

/* ---- Life ---- */

static bool planned(const shmb_plan *plan, struct superblock *out) {
    *out = (struct superblock){.channels = plan->channels,
                               .slots = plan->slots,
                               .meta_bytes = {plan->header_bytes, plan->header_bytes},
                               .body_bytes = {plan->request_bytes, plan->advice_bytes}};
    return shmb_segment_plan(out);
}

uint64_t shmb_plan_bytes(shmb_plan *plan) {
    struct superblock b;
    uint64_t mask = ALIGNMENT - 1;
    if (plan->header_bytes > UINT32_MAX || plan->request_bytes > (uint64_t)1 << 40 ||
        plan->advice_bytes > (uint64_t)1 << 40)
        return 0;
    plan->header_bytes = (plan->header_bytes + mask) & ~mask;
    plan->request_bytes = (plan->request_bytes + mask) & ~mask;
    plan->advice_bytes = (plan->advice_bytes + mask) & ~mask;
    return planned(plan, &b) ? b.size : 0;
}

int shmb_plan_reserve(const shmb_plan *plan, int fd, uint64_t *needed) {
    struct superblock b;
    *needed = 0;
    if (!planned(plan, &b)) return EINVAL;
    if (fd >= 0 && ftruncate(fd, (off_t)b.size)) return errno;
    return shmb_segment_reserve(fd, &b, needed);
}

static shmb_status create(shmb_host *h, int fd, const shmb_plan *plan, const uint8_t *session) {
    struct superblock block;
    if (!planned(plan, &block))
        return shmb_fail(&h->error, SHMB_INVALID, "no segment has %u channels of %u slots",
                         plan->channels, plan->slots);
    memcpy(block.session, session, SESSION_BYTES);
    if (!(h->channels = calloc(plan->channels, sizeof *h->channels)))
        return shmb_fail(&h->error, SHMB_NO_MEMORY, "no memory for %u channels", plan->channels);
    if (shmb_segment_format(fd, &block, &h->segment, &h->error)) return h->error.status;
    h->line = shmb_segment_host_line(&h->segment);
    shmb_waiter_tell(&h->waiter, &h->line->wait_hint);
    h->waiter.host = h->line;
    for (uint32_t i = 0; i < plan->channels; i++) {
        shmb_channel_init(&h->channels[i], &h->segment, i);
        h->count = i + 1;
    }
    h->bell = shmb_segment_host_semaphore(&h->segment);
    return SHMB_OK;
}

shmb_status shmb_host_create(int fd, const shmb_plan *plan, const uint8_t *session, shmb_wait wait,
                             shmb_host **out) {
    shmb_host *h = *out = calloc(1, sizeof *h);
    if (!h) return SHMB_NO_MEMORY;
    shmb_waiter_init(&h->waiter, wait);
    if (create(h, fd, plan, session)) {
        h->segment.fd = -1; /* still the caller's */
        h->closed = true;
    }
    return h->error.status;
}

void shmb_host_set_deadline(shmb_host *h, double seconds) {
    int64_t ns = shmb_clock_span(seconds);
    if (h->segment.inherited.forked) return;
    store_relaxed(&h->line->deadline, ns == INT64_MAX ? UINT64_MAX : (uint64_t)ns);
}

void shmb_host_set_workers(shmb_host *h, uint32_t workers) {
    store_relaxed(&h->line->workers, workers);
}

void shmb_host_close(shmb_host *h) {
    if (h->closed) return;
    h->closed = true;
    if (h->segment.inherited.forked) return;
    store_relaxed(&h->line->closed, 1); /* after the replies, and the full fence behind each */
    for (uint32_t i = 0; i < h->count; i++) {
        /* Threads that have the mutex need the file; later ones see that the host is closed. */
        pthread_mutex_lock(&h->channels[i].mutex);
        pthread_mutex_unlock(&h->channels[i].mutex);
        shmb_semaphore_post(&h->channels[i].line->semaphore);
    }
    shmb_segment_unlock(&h->segment);
}

void shmb_host_free(shmb_host *h) {
    if (!h) return;
    shmb_host_close(h);
    for (uint32_t i = 0; i < h->count; i++) shmb_channel_free(&h->channels[i]);
    free(h->channels);
    shmb_segment_detach(&h->segment);
    free(h);
}

/* NULL: no channel has such a key. */
static struct channel *channel_of(const shmb_host *h, int64_t key) {
    return key >= 0 && key_channel(key) < h->count ? &h->channels[key_channel(key)] : NULL;
}

const char *shmb_host_error(const shmb_host *h, int64_t key) {
    if (!h) return shmb_strerror(SHMB_NO_MEMORY);
    const struct channel *c = channel_of(h, key);
    return c ? c->error.message : h->error.message;
}

void *shmb_host_memory(const shmb_host *h, uint64_t *size) {
    *size = h->segment.size;
    return h->segment.base;
}

bool shmb_host_forked(const shmb_host *h) { return h->segment.inherited.forked; }

void shmb_host_wake(shmb_host *h) {
    atomic_store(&h->woken, 1);
    if (h->bell && !h->segment.inherited.forked) shmb_semaphore_post(h->bell);
}

int shmb_host_attached(const shmb_host *h) { return (int)h->active_count; }

int shmb_host_waiting(const shmb_host *h) {
    int n = 0;
    for (uint32_t i = 0; i < h->active_count; i++) {
        const struct channel *c = &h->channels[h->active[i]];
        n += load_relaxed(&c->open) && !receiver_ready(&c->in);
    }
    return n;
}

int64_t shmb_host_claim(shmb_host *h, int64_t channel) {
    if (channel < 0 || channel >= h->count) return -1;
    struct channel *c = &h->channels[channel];
    pthread_mutex_lock(&c->mutex);
    int64_t claim = c->active ? (int64_t)c->in.generation : -1;
    pthread_mutex_unlock(&c->mutex);
    return claim;
}

bool shmb_host_delays(shmb_host *h, const char *label, shmb_delay *last) {
    if (h->closed || h->segment.inherited.forked) return false;
    uint32_t received = load_relaxed(&h->received);
    bool idle = received == last->received, delays = false;
    last->received = received;
    for (uint32_t i = 0; i < h->count && !delays; i++) {
        pthread_mutex_lock(&h->channels[i].mutex);
        delays = shmb_channel_delays(&h->channels[i], label, idle, last);
        pthread_mutex_unlock(&h->channels[i].mutex);
    }
    return delays;
}

/* ---- Upkeep: claims and the dead ---- */

/* Out of line, so that what comes before it stays small enough to be inlined. */
static __attribute__((noinline)) void list_active(shmb_host *h) {
    uint32_t count = 0; /* others may ask for it meanwhile */
    for (uint32_t i = 0; i < h->count; i++)
        if (h->channels[i].active) h->active[count++] = (uint16_t)i;
    h->active_count = count;
    store_relaxed(&h->line->runners, count);
    bool one = count == 1;
    h->waiter.peer = one ? &h->channels[h->active[0]].runner->wait_hint : NULL;
}

static bool claims_changed(const shmb_host *h) {
    for (uint32_t i = 0; i < h->count; i++)
        if (load_relaxed(&h->channels[i].runner->claim) != h->channels[i].seen) return true;
    return false;
}

static void upkeep(shmb_host *h) {
    int64_t now = shmb_clock_ns();
    bool look_for_dead = now - h->upkeep >= SLICE_NS / 2;
    if (look_for_dead) h->upkeep = now;
    for (uint32_t i = 0; i < h->count; i++) {
        struct channel *c = &h->channels[i];
        pthread_mutex_lock(&c->mutex);
        shmb_channel_follow_claim(c);
        if (look_for_dead && c->active &&
            shmb_peer_look(h->segment.fd, CHANNEL_BYTE + (int)i) == PEER_DEAD)
            shmb_channel_retire(c);
        pthread_mutex_unlock(&c->mutex);
    }
    list_active(h);
}

/* A claim rings the bell, which a host that never sleeps would not hear. */
static void upkeep_if_due(shmb_host *h) {
    if (!h->looping) {
        h->looping = true;
        shmb_peer_take(h->segment.fd, LOOP_BYTE);
    }
    uint32_t received = load_relaxed(&h->received) + 1;
    store_relaxed(&h->received, received);
    if (shmb_semaphore_try_wait(h->bell) || received % RECEIVES_PER_UPKEEP == 0) upkeep(h);
}

/* ---- Receive ---- */

void shmb_host_rest(shmb_host *h) {
    if (!h->looping || h->closed || h->segment.inherited.forked) return;
    shmb_peer_unlock(h->segment.fd, LOOP_BYTE);
    h->looping = false;
}

static inline bool look(shmb_host *h) {
    for (uint32_t k = 0, i = h->next; k < h->active_count; k++, i++) {
        if (i >= h->active_count) i = 0;
        if (!receiver_ready(&h->channels[h->active[i]].in)) continue;
        h->found = h->active[i];
        h->next = i + 1;
        return true;
    }
    return false;
}

/* The same, and from time to time whether there is something else to do. */
static bool look_wider(void *context) {
    shmb_host *h = context;
    h->found = MAX_CHANNELS;
    return look(h) ||
           (++h->looks % LOOKS_PER_CLAIMS == 0 && (load_relaxed(&h->woken) || claims_changed(h)));
}

static int64_t accept_found(shmb_host *h) {
    struct channel *c = &h->channels[h->found];
    pthread_mutex_lock(&c->mutex);
    bool open = c->active && !h->closed;
    int64_t key = open ? shmb_channel_accept(c, h->found) : -(int64_t)SHMB_TIMEOUT;
    pthread_mutex_unlock(&c->mutex);
    if (!c->active) list_active(h);
    return key;
}

static int64_t receive_slowly(shmb_host *h, int64_t until) {
    h->waiter.waits = false; /* says anew since when: shmbridge inspect sees that it still looks */
    for (;;) {
        if (load_relaxed(&h->woken) && atomic_exchange(&h->woken, 0))
            return -(int64_t)SHMB_INTERRUPTED;
        enum waited waited =
            shmb_waiter_wait(&h->waiter, look_wider, h, &h->line->asleep, h->bell, until);
        if (waited <= WOKEN && h->found < MAX_CHANNELS) {
            /* The post may have been a claim's: the next receive looks after it. */
            if (waited == WOKEN && claims_changed(h)) shmb_semaphore_post(h->bell);
            int64_t key = accept_found(h);
            if (key >= 0) return key;
        }
        if (h->closed) return -(int64_t)SHMB_CLOSED;
        upkeep(h);
        if (atomic_exchange(&h->woken, 0) || waited == SIGNALLED) return -(int64_t)SHMB_INTERRUPTED;
        if (waited == SLICE_OVER || shmb_clock_ns() >= until)
            return look(h) ? accept_found(h) : -(int64_t)SHMB_TIMEOUT;
    }
}

int64_t shmb_host_receive(shmb_host *h, int64_t timeout_ns) {
    if (h->segment.inherited.forked) return -(int64_t)SHMB_FORKED;
    if (h->closed) return -(int64_t)SHMB_CLOSED;
    upkeep_if_due(h);
    if (look(h)) {
        int64_t key = accept_found(h);
        if (key >= 0) return key;
    }
    if (timeout_ns > SLICE_NS) timeout_ns = SLICE_NS;
    return receive_slowly(h, shmb_clock_ns() + (timeout_ns > 0 ? timeout_ns : 0));
}

int64_t shmb_host_take(shmb_host *h) {
    if (h->segment.inherited.forked || h->closed || !look(h)) return -(int64_t)SHMB_TIMEOUT;
    upkeep_if_due(h);
    shmb_waiter_news(&h->waiter);
    return accept_found(h);
}

int64_t shmb_host_poll(shmb_host *h) {
    if (h->segment.inherited.forked || h->closed) return -(int64_t)SHMB_TIMEOUT;
    upkeep_if_due(h);
    for (uint64_t i = 0, looks = 1; i < looks; i++) {
        if (look(h)) {
            shmb_waiter_news(&h->waiter);
            return accept_found(h);
        }
        if (i == 0 && h->waiter.policy != SHMB_WAIT_BLOCK)
            looks = shmb_waiter_spins(&h->waiter) ? LOOKS_PER_POLL : LOOKS_PER_CROWDED_POLL;
        cpu_pause();
    }
    return -(int64_t)SHMB_TIMEOUT;
}

/* ---- Reply ---- */

/* The channel of a key, locked; NULL when the key cannot be. */
static struct channel *host_enter(shmb_host *h, int64_t key) {
    struct channel *c = channel_of(h, key);
    if (!c || h->segment.inherited.forked) return NULL;
    pthread_mutex_lock(&c->mutex);
    if (!h->closed) return c;
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static shmb_status leave(struct channel *c, shmb_status status) {
    pthread_mutex_unlock(&c->mutex);
    return status;
}

static shmb_status refused(const shmb_host *h) {
    if (h->segment.inherited.forked) return SHMB_FORKED;
    return h->closed ? SHMB_CLOSED : SHMB_INVALID;
}

const shmb_message *shmb_host_message(shmb_host *h, int64_t key) {
    struct channel *c = channel_of(h, key);
    if (!c) return NULL;
    /* a thread that is no more may hold the mutex */
    if (h->segment.inherited.forked) return shmb_channel_message(c, key);
    pthread_mutex_lock(&c->mutex);
    const shmb_message *m = shmb_channel_message(c, key);
    pthread_mutex_unlock(&c->mutex);
    return m;
}

int64_t shmb_host_values(shmb_host *h, int64_t key, int64_t index, void *out, int64_t room) {
    struct channel *c = host_enter(h, key);
    int64_t bytes = -1;
    if (!c) return bytes;
    const struct request *q = &c->requests[key_slot(key)];
    if (q->key == key && index >= 0 && index < q->message.count) {
        const shmb_tensor *t = &q->message.tensors[index];
        bytes = t->size * (int64_t)shmb_dtype_size(t->dtype);
        if (bytes && bytes <= room) take_copy(out, t->data, (size_t)bytes);
    }
    pthread_mutex_unlock(&c->mutex);
    return bytes;
}

bool shmb_host_offsets(shmb_host *h, int64_t key, int64_t index, int64_t *out) {
    struct channel *c = host_enter(h, key);
    const shmb_message *m = c ? shmb_channel_message(c, key) : NULL;
    const shmb_tensor *t = m && index >= 0 && index < m->count ? &m->tensors[index] : NULL;
    bool there = t && t->offsets;
    if (there) memcpy(out, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *out);
    if (c) pthread_mutex_unlock(&c->mutex);
    return there;
}

bool shmb_host_runner(shmb_host *h, int64_t key, uint64_t *number, uint32_t *pid, char *label) {
    struct channel *c = host_enter(h, key);
    bool there = c && c->requests[key_slot(key)].key == key;
    if (there) {
        *number = (uint64_t)c->in.generation * MAX_CHANNELS + key_channel(key);
        *pid = c->pid;
        memcpy(label, c->label, sizeof c->label);
    }
    if (c) pthread_mutex_unlock(&c->mutex);
    return there;
}

shmb_status shmb_host_reply(shmb_host *h, int64_t key, int how, const shmb_tensor *fields,
                            int64_t count) {
    struct channel *c = host_enter(h, key);
    if (!c) return refused(h);
    c->unwoken = how & SHMB_UNWOKEN;
    shmb_status status = shmb_channel_reply(c, key, how & SHMB_KEEP, fields, count);
    c->unwoken = false;
    return leave(c, status);
}

void shmb_host_wake_runner(shmb_host *h, int64_t key) {
    const struct channel *c = channel_of(h, key);
    if (c && !h->segment.inherited.forked) shmb_channel_wake(c);
}

shmb_status shmb_host_reply_error(shmb_host *h, int64_t key, bool keep, shmb_status status,
                                  const char *text, size_t bytes) {
    struct channel *c = host_enter(h, key);
    return c ? leave(c, shmb_channel_reply_error(c, key, keep, status, text, bytes)) : refused(h);
}

void shmb_host_release(shmb_host *h, int64_t key) {
    struct channel *c = host_enter(h, key);
    if (!c) return;
    shmb_channel_release(c, key);
    pthread_mutex_unlock(&c->mutex);
}
