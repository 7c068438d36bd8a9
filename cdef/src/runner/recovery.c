/* A runner that, when its host is gone, connects and asks anew. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/default.h"
#include "runner/local.h"
#include "shmbridge/environment.h"

enum { DOUBLINGS = 4 };
static const double default_backoff = 0.05;

enum step { ASKING, PAUSING, CONNECTING };

struct recovery {
    struct local local; /* the request, which outlives connections */
    const shmb_tensor *features;
    /* the connection: its kind is asked, its message filled; NULL: none */
    shmb_runner *_Atomic inner;
    _Atomic int interrupting; /* somebody uses inner in shmb_interrupt */
    bool at_once;             /* the library's own kind, which connects at once or not at all */
    char *text, *label;       /* of the URL; of the options, or NULL */
    shmb_options options;
    int64_t backoff_ns;
    int32_t retries, left; /* for one evaluate; of this one */
    enum step step;
    /* when PAUSING ends; how long CONNECTING waits for a host that lives */
    int64_t pause_ends, patience;
    bool present; /* a host was there at the last attempt to connect, which failed */
    int64_t took; /* how long that attempt took; 0: it did not fail */
    /* nobody was there when the retries were used up: evaluates fail at once, but for a look now
     * and then */
    bool away;
    int64_t next_look;
    struct error why; /* away: the failure of all of them */
    uint64_t random;  /* the pauses of runners that lost the same host differ */
};

/* Before a retry, in ns: twice as long for each attempt (0 for the first), less up to a half. */
static int64_t next_pause(struct recovery *s, int attempt) {
    double full = (double)(s->backoff_ns << (attempt < DOUBLINGS ? attempt : DOUBLINGS));
    return (int64_t)(full - full / 2 * shmb_random(&s->random));
}

/* ---- Connect ---- */

static void disconnect(struct recovery *s) {
    shmb_runner *inner = atomic_exchange(&s->inner, NULL);
    /* a handler in this thread has ended, another thread's does so soon */
    while (!s->local.inherited.forked && atomic_load(&s->interrupting)) continue;
    shmb_close(inner);
}

/* One attempt; its failure goes to *e. */
static shmb_status connect(struct recovery *s, double seconds, int64_t until, struct error *e) {
    shmb_options options = s->options, ignored = {.size = sizeof ignored};
    struct url url;
    shmb_runner *inner = shmb_runner_new();
    if (!inner) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    options.connect_timeout = seconds;
    inner->until = until;
    int64_t began = shmb_clock_ns();
    bool split = !shmb_url_split(s->text, &url, &ignored, e);
    if (split) s->at_once = shmb_kind_find(url.scheme);
    if (!split || shmb_runner_connect(inner, &url, &options)) {
        if (inner->broken.status) *e = inner->broken;
        s->present = inner->present;
        shmb_close(inner);
        s->took = shmb_clock_ns() - began;
        return e->status;
    }
    s->took = 0;
    s->away = false;
    atomic_store(&s->inner, inner);
    return SHMB_OK;
}

/* Where the caller says no deadline, the host that is connected now does. */
static void follow_host(shmb_runner *r, const struct recovery *s) {
    r->host_deadline_ns = s->inner->host_deadline_ns;
    shmb_runner_limit(r);
}

/* The retries are used up, or of no use: until somebody is there again, evaluates cost next to
 * nothing. */
static int stay_away(shmb_runner *r, struct recovery *s, const struct error *why) {
    s->away = true;
    s->why = r->error = *why;
    s->next_look = shmb_clock_ns() + SHARE * (s->took > s->backoff_ns ? s->took : s->backoff_ns);
    return (int)why->status;
}

static void recovery_release(struct recovery *s) {
    disconnect(s);
    shmb_local_close(&s->local);
    free(s->text);
    free(s->label);
    free(s);
}

static void recovery_close(shmb_runner *r) { recovery_release(r->kind_state); }

static const struct runner_ops recovering_runner;

shmb_status shmb_recovery_open(shmb_runner *r, const char *text, const shmb_options *options,
                               double seconds) {
    struct recovery *s = calloc(1, sizeof *s);
    if (!s) return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    double backoff = options->backoff > 0 ? options->backoff : default_backoff;
    s->text = strdup(text);
    s->options = *options;
    s->options.default_advice = NULL; /* the caller's, and read by now */
    if (options->label) s->options.label = s->label = strdup(options->label);
    s->retries = options->retries;
    s->backoff_ns = backoff < 1e6 ? (int64_t)(backoff * 1e9) + 1 : (int64_t)1e15;
    s->random = (uint64_t)shmb_clock_ns() ^ (uint64_t)getpid() << 32 ^ (uintptr_t)s;
    struct error e = {0};
    shmb_status status = s->text ? connect(s, seconds, r->until, &e) : SHMB_NO_MEMORY;
    r->present = s->present;
    s->took = 0; /* waiting for the first host is another thing */
    if (!status) follow_host(r, s);
    bool opens = !status || shmb_status_lacks_host(status) || status == SHMB_TIMEOUT;
    if (opens && shmb_local_open(&s->local, r) == SHMB_OK) {
        r->kind = &recovering_runner;
        if (status) stay_away(r, s, &e);
        return status;
    }
    recovery_release(s);
    if (!e.status) shmb_fail(&e, SHMB_NO_MEMORY, "no memory for a runner");
    if (!r->broken.status) r->broken = e;
    return r->broken.status;
}

/* ---- Ask ---- */

/* What this evaluate's question comes to after a failure that another connection may mend. */
static int lost(shmb_runner *r, const struct error *failure) {
    struct recovery *s = r->kind_state;
    struct error why = *failure;
    int asked = s->retries - s->left;
    disconnect(s);
    int64_t now = shmb_clock_ns(), pause = next_pause(s, asked);
    if (s->left > 0 && (r->until == INT64_MAX || pause < r->until - now)) {
        s->left--;
        r->stats.retries++;
        s->step = PAUSING;
        s->pause_ends = now + pause;
        return PENDING;
    }
    if (!s->away && asked > 0)
        shmb_fail(&why, failure->status, "after %d more tries: %s", asked, failure->message);
    return stay_away(r, s, &why);
}

/* The failure of a question: its own, or that of its connection. */
static int judge(shmb_runner *r, int status) {
    struct recovery *s = r->kind_state;
    struct error e = s->inner->broken.status ? s->inner->broken : s->inner->error;
    shmb_discard(s->inner);
    if (shmb_status_lacks_host((shmb_status)status)) return lost(r, &e);
    if (s->inner->broken.status) disconnect(s); /* the next question has another */
    r->error = e;
    if (status == SHMB_INTERRUPTED) atomic_store(&r->interrupted, 0); /* that was for this one */
    return status;
}

static int recovery_ask(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    shmb_runner *inner = s->inner;
    shmb_runner_begin(inner);
    for (uint32_t i = 0; i < r->builder.count && !inner->stuck.status; i++)
        shmb_runner_copy(inner, &s->features[i]);
    int64_t left = r->until - shmb_clock_ns();
    if (left < 1) left = 1;
    inner->deadline_ns = r->until == INT64_MAX ? INT64_MAX : left;
    inner->began = r->began;
    inner->until = r->until;
    inner->want = r->want;
    inner->number = r->number;
    inner->advice = NULL;
    atomic_store(&inner->interrupted, 0);
    /* what is meant for this question, and nothing older */
    if (atomic_load(&r->interrupted)) atomic_store(&inner->interrupted, 1);
    if (inner->stuck.status) inner->error = inner->stuck;
    shmb_status status = inner->stuck.status ? inner->stuck.status : inner->kind->start(inner);
    s->step = ASKING;
    return status ? judge(r, (int)status) : PENDING;
}

static shmb_status recovery_start(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    if (!(s->features = shmb_local_features(r))) return r->error.status;
    s->left = s->away ? 0 : s->retries;
    if (s->inner) {
        int status = recovery_ask(r);
        return status == PENDING ? SHMB_OK : (shmb_status)status;
    }
    int64_t now = shmb_clock_ns();
    if (s->away && now < s->next_look) {
        r->error = s->why;
        return r->error.status;
    }
    s->step = PAUSING;
    s->pause_ends = now;
    return SHMB_OK;
}

static bool pause_over(const struct recovery *s, int64_t until) {
    int64_t now = shmb_clock_ns(), most = now + SLICE_NS,
            end = s->pause_ends < until ? s->pause_ends : until;
    int64_t ns = (end < most ? end : most) - now;
    if (ns <= 0) return now >= s->pause_ends;
    return shmb_sleep(ns) && now + ns >= s->pause_ends;
}

/* A host of the library's own kinds is there or is not, and has a slice to answer; others need time
 * to see, and do not know `until`. */
static shmb_status attempt(shmb_runner *r, struct error *e) {
    struct recovery *s = r->kind_state;
    int64_t now = shmb_clock_ns(), most = s->at_once ? SLICE_NS : MOMENT_NS,
            until = r->until - now < most ? r->until : now + most;
    double given = s->options.connect_timeout,
           seconds = (double)(until > now ? until - now : 1) / 1e9;
    if (until < r->until && given < seconds) seconds = given;
    return connect(s, s->at_once ? 0 : seconds, until, e);
}

static int connect_and_ask(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    struct error e = {0};
    bool looks = s->away;
    if (!attempt(r, &e)) {
        follow_host(r, s);
        if (looks) s->left = s->retries;
        return recovery_ask(r);
    }
    /* a host that lives is asked again */
    if (e.status == SHMB_TIMEOUT && !looks && shmb_clock_ns() < s->patience) return PENDING;
    if (shmb_status_lacks_host(e.status) || e.status == SHMB_TIMEOUT) return lost(r, &e);
    /* such as another version: trying again soon does not help */
    if (e.status != SHMB_INTERRUPTED) return stay_away(r, s, &e);
    r->error = e;
    return SHMB_INTERRUPTED;
}

static int recovery_proceed(shmb_runner *r, int64_t until) {
    struct recovery *s = r->kind_state;
    until = earlier(until, r->until);
    if (s->step == ASKING) {
        shmb_runner *inner = s->inner;
        int64_t before = inner->waited_ns;
        int status = inner->kind->proceed(inner, until);
        r->waited_ns += inner->waited_ns - before;
        if (status) return status == PENDING ? PENDING : judge(r, status);
        inner->advice = inner->kind->advice;
        r->advice_count = inner->advice_count;
        r->advice_dtype = inner->advice_dtype;
        r->untyped = inner->untyped;
        shmb_discard(inner);
        return SHMB_OK;
    }
    if (s->step == PAUSING) {
        int64_t began = shmb_clock_ns();
        bool over = pause_over(s, until);
        r->waited_ns += shmb_clock_ns() - began;
        if (!over) return PENDING;
        s->step = CONNECTING;
        s->patience =
            later(shmb_clock_ns(), shmb_clock_span(at_least_a_moment(s->options.connect_timeout)));
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
    } else if (shmb_clock_ns() >= r->until) {
        /* so that the next evaluate does not spend its time, too */
        struct error why, is = r->error;
        shmb_fail(&why, SHMB_NO_HOST, "no host was back within the deadline");
        stay_away(r, s, &why);
        r->error = is;
    }
}

static const char *recovery_asks_again(shmb_runner *r) {
    const struct recovery *s = r->kind_state;
    shmb_runner *inner = s->inner;
    if (!inner) return NULL; /* away: that ends it at once */
    inner->asks_from = r->asks_from;
    return inner->kind->asks_again(inner);
}

static int64_t recovery_expected(const shmb_runner *r, const char *agent, int64_t index,
                                 shmb_port *out) {
    const struct recovery *s = r->kind_state;
    const shmb_runner *inner = s->inner;
    return inner && inner->kind->expected ? inner->kind->expected(inner, agent, index, out) : -1;
}

static void recovery_interrupt(shmb_runner *r) {
    struct recovery *s = r->kind_state;
    atomic_fetch_add(&s->interrupting, 1);
    shmb_runner *inner = s->inner;
    shmb_interrupt(inner);
    atomic_fetch_sub(&s->interrupting, 1);
}

static const struct runner_ops recovering_runner = {.begin = shmb_local_begin,
                                                    .start = recovery_start,
                                                    .proceed = recovery_proceed,
                                                    .advice = recovery_advice,
                                                    .abandon = recovery_abandon,
                                                    .asks_again = recovery_asks_again,
                                                    .close = recovery_close,
                                                    .interrupt = recovery_interrupt,
                                                    .expected = recovery_expected};
