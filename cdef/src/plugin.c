/* Runner kinds that others register: the request lies in this process's memory, and one call answers it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "local.h"
#include "ring.h"
#include "sink.h"

enum { MOST = 256 };

struct plugin {
    struct runner_kind kind; /* first: a kind is cast to its plugin */
    const shmb_runner_kind *registered;
};

static struct plugin known[MOST];
static _Atomic int count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

struct state {
    struct local local;
    const shmb_runner_kind *registered;
    void *its;
    struct memory reply;
    struct builder advice;
};

static void release(struct state *s) {
    local_close(&s->local);
    builder_free(&s->advice);
    memory_release(&s->reply);
    free(s);
}

static shmb_status plugin_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    const struct plugin *p = (const struct plugin *)plugin_find(url->scheme);
    struct state *s = calloc(1, sizeof *s);
    if (!s || !memory_reserve(&s->reply)) {
        free(s);
        return fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    }
    char where[URL_ROOM];
    url_where(url, where, sizeof where);
    s->registered = p->registered;
    s->advice.error = &r->error;
    shmb_sink sink = {.error = &r->broken};
    shmb_status status =
        s->registered->open(s->registered->context, where, options, &s->its, &sink);
    if (!sink_result(status, &r->broken, "the runner", url->scheme)) {
        r->kind_state = s;
        if (local_open(&s->local, r)) return SHMB_OK;
        if (s->registered->close) s->registered->close(s->its);
        fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    }
    release(s);
    return r->broken.status;
}

static shmb_status plugin_start(shmb_runner *r) {
    struct state *s = r->kind_state;
    const shmb_tensor *features = local_features(r);
    if (!features) return r->error.status;
    memory_trim(&s->reply, s->advice.used);
    builder_start(&s->advice, s->reply.base, s->reply.room, NULL);
    shmb_sink sink = {.message = &s->advice, .error = &r->error, .interrupt = &r->interrupted};
    shmb_status status = s->registered->evaluate(s->its, features, r->builder.count, r->want,
                                                 (double)r->deadline_ns / 1e9, &sink);
    if (sink_result(status, &r->error, "the runner", s->registered->scheme)) {
        if (status_lasts(r->error.status)) r->broken = r->error;
        return r->error.status;
    }
    const shmb_tensor *advice = builder_tensors(&s->advice);
    if (!advice) return fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
    local_answer(r, advice, s->advice.count);
    return SHMB_OK;
}

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
    if (!kind || kind->size != sizeof *kind || !kind->scheme || !*kind->scheme || !kind->open ||
        !kind->evaluate)
        return SHMB_INVALID;
    if (kind_find(kind->scheme)) return SHMB_IN_USE;
    pthread_mutex_lock(&adding);
    const struct plugin *same = (const struct plugin *)plugin_find(kind->scheme);
    int n = load_acquire(&count);
    shmb_status status = same        ? (same->registered == kind ? SHMB_OK : SHMB_IN_USE)
                         : n == MOST ? SHMB_NO_MEMORY
                                     : SHMB_OK;
    if (!same && !status) {
        known[n] = (struct plugin){.kind = {.scheme = kind->scheme,
                                            .open = plugin_open,
                                            .begin = local_begin,
                                            .start = plugin_start,
                                            .proceed = local_proceed,
                                            .advice = local_advice,
                                            .abandon = local_abandon,
                                            .close = plugin_close},
                                   .registered = kind};
        atomic_store(&count, n + 1);
    }
    pthread_mutex_unlock(&adding);
    return status;
}
