#include "recovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "default.h"
#include "host.h"
#include "local.h"
#include "ring.h"
#include "wait.h"

enum { DOUBLINGS = 4, LONGEST = 1 << DOUBLINGS, CONNECT_NS = 1000 * 1000 * 1000 };
static const double default_backoff = 0.05;

enum step { ASKING, PAUSING, CONNECTING };

struct recovery {
    struct local local; /* the request, which outlives connections */
    const shmb_tensor *features;
    shmb_runner
        *_Atomic inner; /* the connection: its kind is asked, its message filled; NULL: none */
    _Atomic int interrupting; /* somebody uses inner in shmb_interrupt */
    bool at_once;             /* the library's own kind, which connects at once or not at all */
    char *text;               /* of the URL */
    shmb_options options;
    int64_t backoff_ns;
    int32_t retries, left; /* for one evaluate; of this one */
    enum step step;
    int64_t pause_ends,
        patience; /* of PAUSING; of CONNECTING: until when it waits for a host that lives */
    int64_t took; /* the last attempt to connect that failed; 0: none did */
    bool
        away; /* nobody was there when the retries were used up: evaluates fail at once, but for a look now and then */
    int64_t next_look;
    struct error why; /* away: the failure of all of them */
    uint64_t random;  /* the pauses of runners that lost the same host differ */
};

int64_t recovery_pause(int64_t first_ns, int attempt, uint32_t random) {
    int64_t full = first_ns << (attempt < DOUBLINGS ? attempt : DOUBLINGS);
    return full - (int64_t)((double)full / 2 * (random / 4294967296.0));
}

/* ---- Connect ---- */

static void disconnect(struct recovery *s) {
    shmb_runner *inner = atomic_exchange(&s->inner, NULL);
    while (!s->local.inherited.forked && atomic_load(&s->interrupting))
        continue; /* a handler in this thread has ended, another thread's does so soon */
    shmb_close(inner);
}

/* One attempt; its failure goes to *e. */
static shmb_status connect(struct recovery *s, double seconds, struct error *e) {
    shmb_options options = s->options, ignored = {.size = sizeof ignored};
    struct url url;
    shmb_runner *inner = runner_new();
    if (!inner) return fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    options.connect_timeout = seconds;
    int64_t began = clock_ns();
    bool split = !url_split(s->text, &url, &ignored, e);
    if (split) s->at_once = kind_find(url.scheme);
    if (!split || runner_connect(inner, &url, &options)) {
        if (inner->broken.status) *e = inner->broken;
        shmb_close(inner);
        s->took = clock_ns() - began;
        return e->status;
    }
    s->took = 0;
    s->away = false;
    atomic_store(&s->inner, inner);
    return SHMB_OK;
}

static void stay_away(struct recovery *s, const struct error *why) {
    s->away = true;
    s->why = *why;
    s->next_look =
        clock_ns() +
        LONGEST * (s->took > s->backoff_ns
                       ? s->took
                       : s->backoff_ns); /* looking takes at most a sixteenth of the time */
}

static void release(struct recovery *s) {
    disconnect(s);
    local_close(&s->local);
    free(s->text);
    free(s);
}

static void recovery_close(shmb_runner *r) { release(r->kind_state); }

static const struct runner_kind recovering_runner;

shmb_status recovery_open(shmb_runner *r, const char *text, const shmb_options *options,
                          double seconds) {
    struct recovery *s = calloc(1, sizeof *s);
    if (!s) return fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    double backoff = options->backoff > 0 ? options->backoff : default_backoff;
    s->text = strdup(text);
    s->options = *options;
    s->options.default_advice = NULL; /* the caller's, and read by now */
    s->retries = options->retries;
    s->backoff_ns = backoff < 1e6 ? (int64_t)(backoff * 1e9) + 1 : (int64_t)1e15;
    s->random = (uint64_t)clock_ns() ^ (uint64_t)getpid() << 32 ^ (uintptr_t)s;
    struct error e = {0};
    shmb_status status = s->text ? connect(s, seconds, &e) : SHMB_NO_MEMORY;
    s->took = 0; /* waiting for the first host is another thing */
    bool opens = !status || status_lacks_host(status) || status == SHMB_TIMEOUT;
    if (opens && local_open(&s->local, r)) {
        r->kind = &recovering_runner;
        r->kind_state = s;
        r->error = e;
        if (status) stay_away(s, &e);
        return status;
    }
    release(s);
    if (opens || !e.status) fail(&e, SHMB_NO_MEMORY, "no memory for a runner");
    return r->broken = e, e.status;
}

/* ---- Ask ---- */

/* The retries are used up, or of no use: until somebody is there again, evaluates cost next to nothing. */
static int give_up(shmb_runner *r, const struct error *why) {
    stay_away(r->kind_state, why);
    r->error = *why;
    return (int)why->status;
}

/* What this evaluate's question comes to after a failure that another connection may mend. */
static int lost(shmb_runner *r, const struct error *failure) {
    struct recovery *s = r->kind_state;
    struct error why = *failure;
    int asked = s->retries - s->left;
    disconnect(s);
    int64_t now = clock_ns(), pause = recovery_pause(s->backoff_ns, asked,
                                                     (uint32_t)(shmb_random(&s->random) * 0x1p32));
    if (s->left > 0 && (r->until == INT64_MAX || pause < r->until - now)) {
        s->left--;
        s->step = PAUSING;
        s->pause_ends = now + pause;
        return PENDING;
    }
    if (!s->away && asked > 0)
        fail(&why, failure->status, "after %d more tries: %.440s", asked, failure->message);
    return give_up(r, &why);
}

/* The failure of a question: its own, or that of its connection. */
static int judge(shmb_runner *r, int status) {
    struct recovery *s = r->kind_state;
    struct error e = s->inner->broken.status ? s->inner->broken : s->inner->error;
    shmb_discard(s->inner);
    if (status_lacks_host((shmb_status)status)) return lost(r, &e);
    if (s->inner->broken.status) disconnect(s); /* the next question has another */
    r->error = e;
    if (status == SHMB_INTERRUPTED) atomic_store(&r->interrupted, 0); /* that was for this one */
    return status;
}

static int ask(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    shmb_runner *inner = s->inner;
    runner_begin(inner);
    for (uint32_t i = 0; i < r->builder.count; i++) {
        const shmb_tensor *t = &s->features[i];
        int64_t *offsets = NULL;
        void *to = shmb_runner_add(inner, t->name, t->dtype, t->kind, t->rank, t->dims, &offsets);
        if (inner->stuck.status) break;
        if (t->offsets) put(offsets, t->offsets, (size_t)(t->dims[0] + 1) * sizeof *offsets);
        if (t->size) put(to, t->data, (size_t)t->size * shmb_dtype_size(t->dtype));
    }
    int64_t left = r->until == INT64_MAX ? 0 : r->until - clock_ns();
    inner->deadline_ns = r->until == INT64_MAX ? 0 : left > 1 ? left : 1;
    inner->until = r->until;
    inner->want = r->want;
    inner->advice = NULL;
    atomic_store(&inner->interrupted, 0);
    if (atomic_load(&r->interrupted))
        atomic_store(&inner->interrupted,
                     1); /* what is meant for this question, and nothing older */
    if (inner->stuck.status) inner->error = inner->stuck;
    shmb_status status = inner->stuck.status ? inner->stuck.status : inner->kind->start(inner);
    s->step = ASKING;
    return status ? judge(r, (int)status) : PENDING;
}

static shmb_status recovery_start(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    if (!(s->features = local_features(r))) return r->error.status;
    s->left = s->away ? 0 : s->retries;
    if (s->inner) {
        int status = ask(r);
        return status == PENDING ? SHMB_OK : (shmb_status)status;
    }
    int64_t now = clock_ns();
    if (s->away && now < s->next_look) {
        r->error = s->why;
        return r->error.status;
    }
    s->step = PAUSING;
    s->pause_ends = now;
    return SHMB_OK;
}

static bool pause_over(const struct recovery *s, int64_t until) {
    int64_t now = clock_ns(), most = now + SLICE_NS,
            end = s->pause_ends < until ? s->pause_ends : until;
    int64_t ns = (end < most ? end : most) - now;
    if (ns <= 0) return now >= s->pause_ends;
    return nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000},
                     NULL) == 0 &&
           now + ns >= s->pause_ends;
}

/* How long an attempt may take. A host of the library's own kinds is there or is not, and has a slice to answer; others need time to see. */
static double attempt_seconds(const struct recovery *s, int64_t until) {
    int64_t most = s->at_once ? SLICE_NS : CONNECT_NS,
            left = until == INT64_MAX ? INT64_MAX : until - clock_ns();
    double given = s->options.connect_timeout;
    if (left < most) return (double)(left > 1 ? left : 1) / 1e9;
    return s->at_once || given < 0 ? -1 : given < (double)most / 1e9 ? given : (double)most / 1e9;
}

static int connect_and_ask(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    struct error e = {0};
    bool looks = s->away;
    if (!connect(s, attempt_seconds(s, r->until), &e)) {
        if (looks) s->left = s->retries;
        return ask(r);
    }
    if (e.status == SHMB_TIMEOUT && !looks && clock_ns() < s->patience)
        return PENDING; /* a host that lives is asked again */
    if (status_lacks_host(e.status) || e.status == SHMB_TIMEOUT) return lost(r, &e);
    if (e.status != SHMB_INTERRUPTED)
        return give_up(r, &e); /* such as another version: trying again soon does not help */
    r->error = e;
    return SHMB_INTERRUPTED;
}

static int recovery_proceed(shmb_runner *r, int64_t until) {
    struct recovery *s = r->kind_state;
    if (s->step == ASKING) {
        shmb_runner *inner = s->inner;
        int status = inner->kind->proceed(inner, until);
        if (status) return status == PENDING ? PENDING : judge(r, status);
        inner->advice = inner->kind->advice;
        r->advice_count = inner->advice_count;
        r->advice_dtype = inner->advice_dtype;
        shmb_discard(inner);
        return SHMB_OK;
    }
    if (s->step == PAUSING) {
        if (!pause_over(s, until)) return PENDING;
        s->step = CONNECTING;
        s->patience = clock_after(s->options.connect_timeout);
    }
    return connect_and_ask(r);
}

static void recovery_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct recovery *s = r->kind_state;
    s->inner->kind->advice(s->inner, index, out);
}

static void recovery_abandon(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    shmb_runner *inner = s->inner;
    if (inner) {
        inner->kind->abandon(inner);
        shmb_discard(inner);
    } else if (clock_ns() >= r->until) { /* the next evaluate is not to spend its time so too */
        struct error why;
        fail(&why, SHMB_NO_HOST, "no host was back within the deadline");
        stay_away(s, &why);
    }
}

static void recovery_interrupt(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    atomic_fetch_add(&s->interrupting, 1);
    shmb_runner *inner = s->inner;
    shmb_interrupt(inner);
    atomic_fetch_sub(&s->interrupting, 1);
}

static const struct runner_kind recovering_runner = {.begin = local_begin,
                                                     .start = recovery_start,
                                                     .proceed = recovery_proceed,
                                                     .advice = recovery_advice,
                                                     .abandon = recovery_abandon,
                                                     .close = recovery_close,
                                                     .interrupt = recovery_interrupt};
