#include "runner/runner.h"

#include <stdlib.h>
#include <string.h>

#include "message/dtype.h"
#include "runner/default.h"

shmb_status shmb_runner_inherited(struct error *e) {
    return shmb_fail(e, SHMB_FORKED,
                     "this runner was inherited through fork: open another in the child");
}

shmb_status shmb_runner_no_result(struct error *e) {
    return shmb_fail(e, SHMB_INVALID, "expected a pointer to where the result goes, found NULL");
}

shmb_status shmb_runner_no_dtype(struct error *e, shmb_dtype dtype) {
    return shmb_fail(e, SHMB_INVALID, "%d is not a dtype for advice: expected 1 (bool) to %d (%s)",
                     (int)dtype, LAST_DTYPE, shmb_dtypes[LAST_DTYPE].name);
}

shmb_runner *shmb_runner_new(void) {
    static const volatile bool never;
    shmb_runner *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->builder.error = &r->stuck;
    r->forked = &never; /* what did not open */
    r->host_deadline_ns = (int64_t)SHMB_DEADLINE * SECOND_NS;
    return r;
}

void shmb_close(shmb_runner *r) {
    if (!r) return;
    if (r->kind) r->kind->close(r);
    if (r->tickets) r->free_tickets(r->tickets);
    shmb_builder_free(&r->builder);
    free(r->default_advice);
    free(r);
}

/* ---- Fill ---- */

bool shmb_runner_alone(shmb_runner *r) {
    if (!load_relaxed(&r->asking)) return true;
    shmb_fail(&r->broken, SHMB_INVALID, /* for good: who filled what cannot be known */
              "two threads used this runner at once, or one from within an evaluate: open a runner "
              "for each");
    return false;
}

void shmb_runner_begin_message(shmb_runner *r) {
    if (!shmb_runner_alone(r)) return;
    /* then even a message that was begun before may not be written to */
    bool inherited = *r->forked;
    if (r->filling && (!inherited || r->stuck.status)) return;
    r->filling = true;
    if (!r->broken.status && !inherited) {
        r->kind->begin(r);
        return;
    }
    shmb_builder_start(&r->builder, NULL, 0, NULL);
    if (r->broken.status) r->stuck = r->broken;
    else shmb_runner_inherited(&r->stuck);
}

void shmb_discard(shmb_runner *r) {
    if (!r) return;
    r->stuck.status = SHMB_OK;
    if (r->bound) return;
    r->filling = false;
    shmb_builder_clear(&r->builder);
}

/* ---- Deadlines ---- */

static int64_t limit_of(const shmb_runner *r) {
    return r->deadline_ns ? r->deadline_ns : r->host_deadline_ns;
}

double shmb_runner_deadline(const shmb_runner *r) {
    int64_t limit = limit_of(r);
    return limit == INT64_MAX ? HUGE_VAL : (double)limit / 1e9;
}

/* The time, as exactly as the deadline needs it: the exact clock takes 20 ns more. */
static int64_t now_of(const shmb_runner *r) {
    return limit_of(r) < SECOND_NS ? shmb_clock_ns() : shmb_clock_coarse_ns();
}

void shmb_runner_limit(shmb_runner *r) { r->until = later(r->began, limit_of(r)); }

int64_t shmb_runner_until(shmb_runner *r) {
    if (r->began) return r->until;
    r->began = now_of(r);
    shmb_runner_limit(r);
    return r->until;
}

bool shmb_runner_is_late(shmb_runner *r, bool exactly) {
    int64_t until = shmb_runner_until(r);
    return until != INT64_MAX && (exactly ? shmb_clock_ns() : now_of(r)) >= until;
}

shmb_status shmb_runner_fail_late(shmb_runner *r, const char *why) {
    return shmb_fail(&r->error, SHMB_TIMEOUT, "no advice within the deadline of %g s: %s",
                     shmb_runner_deadline(r),
                     why ? why : "use a faster model or a longer deadline");
}

/* The questions after a late answer are not to cost a deadline each. */
static bool asks_again(shmb_runner *r) {
    const char *when = r->asks_from ? r->kind->asks_again(r) : NULL;
    if (when)
        shmb_fail(&r->error, SHMB_TIMEOUT,
                  "not asked: an earlier answer took longer than the deadline of %g s; the model "
                  "is asked again %s",
                  shmb_runner_deadline(r), when);
    else r->asks_from = 0;
    return !when;
}

/* ---- Ask ---- */

/* Out of the way of those that end well. */
__attribute__((noinline, cold)) shmb_status shmb_runner_failed(shmb_runner *r, shmb_status status) {
    r->advice = NULL;
    r->stats.failures[(unsigned)status % SHMB_STATUSES]++;
    if (status == r->broken.status) r->error = r->broken;
    if (r->default_advice) status = shmb_default_take(r, status);
    return shmb_runner_report(r, status);
}

shmb_status shmb_runner_report(shmb_runner *r, shmb_status status) {
    if (!status || status == SHMB_INTERRUPTED || !r->reports) return status;
    r->reports = false;
    shmb_say(r->where, r->error.message,
             "no advice (later failures of this runner are not reported)", r->log, r->log_context);
    return status;
}

shmb_status shmb_runner_none(void) {
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        shmb_say("", "asked a runner that was never opened, or is closed: open it with a URL",
                 "no advice (reported once)", NULL, NULL);
    return SHMB_NO_MEMORY;
}

/* The question under way has failed: after a late one the model is asked again only later. */
static __attribute__((noinline, cold)) shmb_status stop_asking(shmb_runner *r, shmb_status status) {
    set_asking(r, false);
    if (status == SHMB_TIMEOUT && !r->asks_from) {
        int64_t now = shmb_clock_ns();
        r->asks_from = now + SHARE * (now - r->began);
    }
    return status;
}

static bool was_interrupted(shmb_runner *r) {
    if (!load_relaxed(&r->interrupted) || !atomic_exchange(&r->interrupted, 0)) return false;
    return shmb_fail(&r->error, SHMB_INTERRUPTED, "interrupted while waiting for advice");
}

shmb_status shmb_runner_check_names(shmb_runner *r) {
    return shmb_names_check(r->builder.fields, r->builder.count, SHMB_INVALID, NO_MESSAGE,
                            &r->error);
}

shmb_status shmb_runner_ask(shmb_runner *r, shmb_dtype want, uint64_t place) {
    r->advice = NULL;
    r->asked = true;
    r->number = (uint64_t)++r->stats.questions | place;
    r->want = want;
    if (!want_exists(want) && !r->stuck.status) shmb_runner_no_dtype(&r->stuck, want);
    r->began = 0;
    bool asks = r->broken.status || r->stuck.status || asks_again(r);
    if (r->broken.status) return r->broken.status;
    if (r->stuck.status) {
        r->error = r->stuck;
        return r->stuck.status;
    }
    if (was_interrupted(r) || !asks) return r->error.status;
    set_asking(r, true);
    shmb_status status = r->kind->start(r);
    return status ? stop_asking(r, status) : SHMB_OK;
}

shmb_status shmb_runner_start(shmb_runner *r, shmb_dtype want) {
    if (!r) return shmb_runner_none();
    shmb_runner_begin(r);
    if (load_relaxed(&r->asking)) return r->broken.status;
    shmb_status status = shmb_runner_ask(r, want, 0);
    if (!status) return SHMB_OK;
    status = shmb_runner_failed(r, status);
    shmb_discard(r);
    return status;
}

void shmb_runner_abandon(shmb_runner *r, shmb_status status) {
    if (load_relaxed(&r->asking)) {
        set_asking(r, false);
        if (r->drop_ticket) r->drop_ticket(r, r->number);
        r->kind->abandon(r);
        shmb_runner_failed(r, status);
    }
    /* in Python, Ctrl-C may come before the question or right behind its answer */
    r->advice = NULL;
    shmb_discard(r);
}

/* The advice is one tensor or list of the wanted dtype, as asked. */
static shmb_status check_wanted(shmb_runner *r) {
    shmb_tensor t;
    if (r->want == SHMB_ANY) return SHMB_OK;
    if (r->advice_count != 1)
        return shmb_fail(&r->error, SHMB_MISMATCH,
                         "expected one advice of dtype %s, found %u fields: ask with shmb_evaluate "
                         "and read them by name",
                         shmb_dtype_name(r->want), r->advice_count);
    if (r->advice_dtype == r->want) return SHMB_OK;
    r->advice(r, 0, &t);
    return shmb_fail(
        &r->error, SHMB_MISMATCH, "expected advice of dtype %s, found \"%.100s\" of %s%s",
        shmb_dtype_name(r->want), t.name,
        t.kind == SHMB_STRING || t.kind == SHMB_STRINGS ? "text" : "dtype ",
        t.kind == SHMB_STRING || t.kind == SHMB_STRINGS ? "" : shmb_dtype_name(t.dtype));
}

int shmb_runner_look(shmb_runner *r, int64_t until) {
    int status = *r->forked ? (int)shmb_runner_inherited(&r->error) : r->kind->proceed(r, until);
    if (status == PENDING && was_interrupted(r)) {
        r->kind->abandon(r);
        status = SHMB_INTERRUPTED;
    } else if (status == PENDING && shmb_runner_is_late(r, true)) {
        r->kind->abandon(r);
        status = shmb_runner_fail_late(r, r->kind->why_late ? r->kind->why_late(r) : NULL);
    }
    if (status > SHMB_OK) return (int)stop_asking(r, (shmb_status)status);
    if (status == SHMB_OK) set_asking(r, false);
    return status;
}

shmb_status shmb_runner_end(shmb_runner *r, int status,
                            void (*read)(shmb_runner *, uint32_t, shmb_tensor *)) {
    if (status == SHMB_OK) {
        r->advice = read;
        status = (int)check_wanted(r);
    }
    return status ? shmb_runner_failed(r, (shmb_status)status) : SHMB_OK;
}

int shmb_runner_wait(shmb_runner *r, int64_t until) {
    if (!load_relaxed(&r->asking)) return SHMB_OK; /* the default advice was taken when it began */
    int status = shmb_runner_look(r, until);
    if (status == PENDING) return PENDING;
    status = (int)shmb_runner_end(r, status, r->kind->advice);
    shmb_discard(r);
    return status;
}

int shmb_runner_continue(shmb_runner *r) { return shmb_runner_wait(r, INT64_MAX); }

shmb_status shmb_evaluate_as(shmb_runner *r, shmb_dtype dtype) {
    int status = (int)shmb_runner_start(r, dtype);
    if (status) return (shmb_status)status;
    while ((status = shmb_runner_continue(r)) == PENDING) continue;
    return (shmb_status)status;
}

shmb_status shmb_evaluate(shmb_runner *r) { return shmb_evaluate_as(r, SHMB_ANY); }

void shmb_set_deadline(shmb_runner *r, double seconds) {
    if (!r) return;
    if (seconds >= 0) {
        r->deadline_ns = seconds > 0 ? shmb_clock_span(seconds) : 0;
        r->asks_from = 0;
        return;
    }
    shmb_runner_begin(r);
    if (!r->stuck.status)
        shmb_fail(&r->stuck, SHMB_INVALID, "a deadline of %g: expected seconds, 0 or more",
                  seconds);
}

void shmb_interrupt(shmb_runner *r) {
    if (!r) return;
    atomic_store(&r->interrupted, 1);
    if (r->kind && r->kind->interrupt) r->kind->interrupt(r);
}

/* ---- Count ---- */

void shmb_runner_stats(const shmb_runner *r, shmb_stats *out) {
    if (!out) return;
    shmb_stats found = r ? r->stats : (shmb_stats){0};
    /* an older caller's is shorter */
    size_t size = out->size < sizeof found ? out->size : sizeof found;
    found.size = out->size;
    found.waited = r ? (double)r->waited_ns / 1e9 : 0;
    memcpy(out, &found, size);
}

/* ---- What the model expects ---- */

static int64_t runner_expected(const shmb_runner *r, const char *agent, int64_t index,
                               shmb_port *out) {
    return r && r->kind && r->kind->expected ? r->kind->expected(r, agent, index, out) : -1;
}

int64_t shmb_expected_count(const shmb_runner *r, const char *agent) {
    return runner_expected(r, agent, -1, NULL);
}

shmb_status shmb_expected_at(shmb_runner *r, const char *agent, int64_t index, shmb_port *out) {
    if (!r) return SHMB_NO_MEMORY;
    if (!out) return shmb_runner_no_result(&r->error);
    int64_t count = runner_expected(r, agent, index, out);
    if (index >= 0 && index < count) return SHMB_OK;
    const char *as = agent ? ", as agent " : "";
    if (!agent) agent = "";
    if (count < 0)
        return shmb_fail(&r->error, SHMB_INVALID,
                         "this runner does not know what its model expects%s%.100s", as, agent);
    return shmb_fail(&r->error, SHMB_INVALID, "there is no feature %lld: the model expects %lld",
                     (long long)index, (long long)count);
}

const char *shmb_error_message(const shmb_runner *r) {
    return r ? r->error.message : shmb_strerror(SHMB_NO_MEMORY);
}
