/* Runner kinds that others register: the request lies in this process's memory, and one call answers it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fork.h"
#include "memory.h"
#include "ring.h"
#include "runner.h"
#include "sink.h"
#include "wait.h"

enum { MOST = 256 };

struct plugin {
    struct runner_kind kind; /* first: a kind is cast to its plugin */
    const shmb_runner_kind *registered;
};

static struct plugin known[MOST];
static _Atomic int count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

struct state {
    const shmb_runner_kind *registered;
    void *its;
    struct memory request, reply;
    struct builder advice;
    struct inherited inherited;
};

/* What it holds is its own business: only that it must not be asked any more is ours. */
static void in_child(struct inherited *handle) { (void)handle; }

static void release(struct state *s) {
    fork_forget(&s->inherited);
    builder_free(&s->advice);
    memory_release(&s->request);
    memory_release(&s->reply);
    free(s);
}

/* "where?option=value&…" of what the library did not know itself. */
static void with_options(const struct url *url, char *out, size_t room) {
    size_t used = (size_t)snprintf(out, room, "%s", url->where);
    for (int i = 0; i < url->count && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%c%s=%s", i ? '&' : '?', url->options[i].name, url->options[i].value);
}

static shmb_status plugin_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    const struct plugin *p = (const struct plugin *)plugin_find(url->scheme);
    struct state *s = calloc(1, sizeof *s);
    if (!s || !memory_reserve(&s->request) || !memory_reserve(&s->reply)) {
        if (s) release(s);
        return fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    }
    char where[URL_ROOM];
    with_options(url, where, sizeof where);
    s->registered = p->registered;
    s->advice.error = &r->error;
    shmb_sink sink = {.error = &r->broken};
    shmb_status status = s->registered->open(s->registered->context, where, options, &s->its, &sink);
    if (sink_result(status, &r->broken, "the runner", url->scheme)) {
        release(s);
        return r->broken.status;
    }
    fork_hold();
    fork_watch(&s->inherited, in_child);
    fork_let_go();
    r->kind_state = s;
    r->forked = &s->inherited.forked;
    return SHMB_OK;
}

static void plugin_begin(shmb_runner *r) {
    const struct state *s = r->kind_state;
    memory_trim(&s->request, r->builder.used);
    builder_start(&r->builder, s->request.base, s->request.room, NULL);
}

static shmb_status plugin_start(shmb_runner *r) {
    struct state *s = r->kind_state;
    const shmb_tensor *features = builder_tensors(&r->builder);
    if (!features) return fail(&r->error, SHMB_NO_MEMORY, "no memory for a request");
    if (runner_check_names(r)) return r->error.status;
    r->error.status = SHMB_OK;
    memory_trim(&s->reply, s->advice.used);
    builder_start(&s->advice, s->reply.base, s->reply.room, NULL);
    shmb_sink sink = {.message = &s->advice, .error = &r->error};
    shmb_status status = s->registered->evaluate(s->its, features, r->builder.count, r->want, (double)r->deadline_ns / 1e9, &sink);
    if (sink_result(status, &r->error, "the runner", s->registered->scheme)) {
        if (status_lasts(r->error.status)) r->broken = r->error;
        return r->error.status;
    }
    r->advice_count = s->advice.count;
    if (r->advice_count) r->advice_dtype = (shmb_dtype)s->advice.fields->dtype;
    return builder_tensors(&s->advice) ? SHMB_OK : fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
}

static int plugin_proceed(shmb_runner *r, int64_t until) {
    (void)r, (void)until;
    return SHMB_OK;
}

static void plugin_advice(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    const struct state *s = r->kind_state;
    *out = s->advice.tensors[index];
}

static void plugin_abandon(shmb_runner *r) { (void)r; }

static void plugin_close(shmb_runner *r) {
    struct state *s = r->kind_state;
    if (s->registered->close) s->registered->close(s->its);
    release(s);
}

const struct runner_kind *plugin_find(const char *scheme) {
    for (int i = 0, n = load_acquire(&count); i < n; i++)
        if (strcmp(known[i].kind.scheme, scheme) == 0) return &known[i].kind;
    return NULL;
}

shmb_status shmb_register_runner(const shmb_runner_kind *kind) {
    if (!kind || kind->size != sizeof *kind || !kind->scheme || !*kind->scheme || !kind->open || !kind->evaluate) return SHMB_INVALID;
    if (strcmp(kind->scheme, "shm") == 0 || strcmp(kind->scheme, "pipe") == 0) return SHMB_IN_USE;
    pthread_mutex_lock(&adding);
    const struct plugin *same = (const struct plugin *)plugin_find(kind->scheme);
    int n = load_acquire(&count);
    shmb_status status = same ? (same->registered == kind ? SHMB_OK : SHMB_IN_USE) : n == MOST ? SHMB_NO_MEMORY : SHMB_OK;
    if (!same && !status) {
        known[n] = (struct plugin){.kind = {.scheme = kind->scheme, .open = plugin_open, .begin = plugin_begin, .start = plugin_start,
                                            .proceed = plugin_proceed, .advice = plugin_advice, .abandon = plugin_abandon, .close = plugin_close},
                                   .registered = kind};
        atomic_store(&count, n + 1);
    }
    pthread_mutex_unlock(&adding);
    return status;
}
