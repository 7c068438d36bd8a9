/* Runner kinds that others register: the request lies in this process's memory, and one call
 * answers it. */
#include <stdlib.h>
#include <string.h>

#include "base/registry.h"
#include "message/sink.h"
#include "runner/local.h"

static struct registry known = {.adding = PTHREAD_MUTEX_INITIALIZER};

struct state {
    struct local local;
    const shmb_runner_kind *registered;
    void *its;
    struct memory reply;
    struct builder advice;
};

static void plugin_release(struct state *s) {
    shmb_local_close(&s->local);
    shmb_builder_free(&s->advice);
    shmb_memory_release(&s->reply);
    free(s);
}

static shmb_status plugin_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    struct state *s = calloc(1, sizeof *s);
    if (!s || !shmb_memory_reserve(&s->reply)) {
        free(s);
        return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    }
    char where[URL_ROOM];
    shmb_url_where(url, where, sizeof where);
    s->registered = shmb_registry_find(&known, url->scheme);
    s->advice.error = &r->error;
    shmb_sink sink = {.error = &r->broken, .deadline = &r->host_deadline_ns};
    shmb_status status =
        s->registered->open(s->registered->context, where, options, &s->its, &sink);
    if (!shmb_sink_result(status, &r->broken, "the runner", url->scheme)) {
        if (shmb_local_open(&s->local, r) == SHMB_OK) return SHMB_OK;
        if (s->registered->close) s->registered->close(s->its);
    }
    plugin_release(s);
    return r->broken.status;
}

static shmb_status plugin_start(shmb_runner *r) {
    struct state *s = r->kind_state;
    const shmb_tensor *features = shmb_local_features(r);
    if (!features) return r->error.status;
    shmb_memory_trim(&s->reply, s->advice.used);
    shmb_builder_start(&s->advice, s->reply.base, s->reply.room, NULL);
    shmb_sink sink = {.message = &s->advice, .error = &r->error, .interrupt = &r->interrupted};
    shmb_status status = s->registered->evaluate(s->its, features, r->builder.count, r->want,
                                                 shmb_runner_deadline(r), &sink);
    if (shmb_sink_result(status, &r->error, "the runner", s->registered->scheme)) {
        if (shmb_status_lasts(r->error.status)) r->broken = r->error;
        return r->error.status;
    }
    const shmb_tensor *advice = shmb_builder_tensors(&s->advice);
    if (!advice) return shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
    shmb_local_answer(r, advice, s->advice.count);
    return SHMB_OK;
}

static void plugin_close(shmb_runner *r) {
    struct state *s = r->kind_state;
    if (s->registered->close) s->registered->close(s->its);
    plugin_release(s);
}

static const struct runner_ops plugin_ops = {
    .open = plugin_open, .start = plugin_start, LOCAL_KIND, .close = plugin_close};

int64_t shmb_tensor_named(const shmb_tensor *tensors, int64_t count, const char *name) {
    for (int64_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0) return i;
    return -1;
}

const struct runner_ops *shmb_plugin_find(const char *scheme) {
    return shmb_registry_find(&known, scheme) ? &plugin_ops : NULL;
}

shmb_status shmb_plugin_add(const shmb_runner_kind *kind) {
    return shmb_registry_add(&known, kind->scheme, kind);
}
