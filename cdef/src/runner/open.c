#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runner/default.h"
#include "runner/recovery.h"
#include "runner/slices.h"

/* The kinds that this library speaks. */
static const struct runner_ops *const kinds[] = {
    &shmb_shm_runner, &shmb_pipe_runner, &shmb_onnx_runner, &shmb_aot_runner, &shmb_tflite_runner};

const char *shmb_version(void) {
    static const char version[] = SHMB_VERSION_TEXT;
    return version;
}

const struct runner_ops *shmb_kind_find(const char *scheme) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->scheme, scheme) == 0) return kinds[i];
    return NULL;
}

void shmb_kind_names(char *list, size_t room) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        shmb_list_name(list, room, kinds[i]->scheme);
}

bool shmb_scheme_known(const char *scheme) {
    return shmb_kind_find(scheme) || shmb_plugin_find(scheme);
}

shmb_status shmb_runner_connect(shmb_runner *r, struct url *url, const shmb_options *options) {
    shmb_options its = *options;
    const struct runner_ops *kind = shmb_kind_find(url->scheme);
    if (!kind) kind = shmb_plugin_find(url->scheme);
    if (!kind) kind = &shmb_embedded_runner;
    its.retries = 0;
    its.backoff = 0;
    its.default_advice = NULL;
    its.log = shmb_say_nothing; /* of a runner that a plug-in opens: this one reports */
    if (kind->open(r, url, &its) == SHMB_OK) r->kind = kind;
    return r->broken.status;
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

shmb_status shmb_runner_try(shmb_runner *r, double seconds,
                            shmb_status (*try)(shmb_runner *, void *, int64_t), void *state) {
    int64_t began = shmb_clock_ns();
    for (;;) {
        r->broken = (struct error){0};
        r->present = false;
        double moment = patience(r, seconds, SHMB_TIMEOUT);
        shmb_status status = try(r, state, earlier(shmb_clock_after(moment), r->until));
        double limit = r->present ? patience(r, seconds, status) : seconds;
        if (limit > 1e8) limit = 1e8; /* three years: no overflow */
        int64_t until = earlier(began + shmb_clock_span(limit), r->until);
        bool again = status == SHMB_NO_HOST || status == SHMB_BUSY || status == SHMB_TIMEOUT;
        if (!again || shmb_clock_ns() >= until) return status;
        shmb_pause_before_retry(until);
    }
}

static shmb_status connect_by_url(shmb_runner *r, const char *text, shmb_options *options,
                                  double slice) {
    struct url url;
    if (!text) text = secure_getenv("SHMBRIDGE_URL");
    if (!text || !*text)
        return shmb_fail(
            &r->broken, SHMB_INVALID,
            "no URL: pass one, e.g. shm://NAME, or set the environment variable SHMBRIDGE_URL (set-uid programs ignore it)");
    if (shmb_url_split(text, &url, options, &r->broken)) return r->broken.status;
    snprintf(r->where, sizeof r->where, "%s://%s", url.scheme, url.where);
    if (options->default_advice &&
        shmb_default_open(&r->default_advice, options->default_advice, &r->broken))
        return r->broken.status;
    shmb_options its = *options;
    if (its.connect_timeout > slice) its.connect_timeout = slice;
    r->until = slice < 1e9 ? shmb_clock_after(slice) : INT64_MAX;
    shmb_set_deadline(r, options->deadline);
    return its.retries ? shmb_recovery_open(r, text, options, its.connect_timeout)
                       : shmb_runner_connect(r, &url, &its);
}

/* Seconds: 0 or more; infinity is no end. */
static bool check_seconds(const shmb_options *o, size_t offset, const char *name, struct error *e) {
    double seconds = 0;
    if (o->size >= offset + sizeof seconds)
        memcpy(&seconds, (const char *)o + offset, sizeof seconds);
    return seconds >= 0 ||
           !shmb_fail(e, SHMB_INVALID, "%s is %g: expected seconds, 0 or more", name, seconds);
}

static shmb_status open_check(const shmb_options *o, struct error *e) {
    if (o->size < sizeof o->size || o->size > sizeof *o)
        return shmb_fail(e, SHMB_INVALID,
                         "shmb_options.size is %zu, expected sizeof(shmb_options), here %zu",
                         o->size, sizeof *o);
    if (o->size > offsetof(shmb_options, wait) && (unsigned)o->wait > SHMB_WAIT_BLOCK)
        return shmb_fail(e, SHMB_INVALID, "shmb_options.wait is %d, expected a shmb_wait",
                         (int)o->wait);
    if (o->size > offsetof(shmb_options, retries) && o->retries < 0)
        return shmb_fail(e, SHMB_INVALID, "shmb_options.retries is %d, expected 0 or more",
                         (int)o->retries);
    if (check_seconds(o, offsetof(shmb_options, connect_timeout), "connect_timeout", e) &&
        check_seconds(o, offsetof(shmb_options, deadline), "deadline", e))
        check_seconds(o, offsetof(shmb_options, backoff), "backoff", e);
    return e->status;
}

shmb_status shmb_open_slice(const char *url, const shmb_options *options, double slice,
                            double *timeout, shmb_runner **out) {
    shmb_options chosen = {.size = sizeof chosen};
    shmb_runner *r = *out = shmb_runner_new();
    shmb_status status;
    if (!r) return SHMB_NO_MEMORY;
    if (options && open_check(options, &r->broken)) status = r->broken.status;
    else {
        if (options) memcpy(&chosen, options, options->size); /* an older caller's is shorter: */
        chosen.size = sizeof chosen; /* what the URL adds may lie behind its end */
        r->log = chosen.log;
        r->log_context = chosen.log_context;
        status = connect_by_url(r, url, &chosen, slice);
        *timeout =
            r->present ? patience(r, chosen.connect_timeout, status) : chosen.connect_timeout;
    }
    if (r->broken.status) r->error = r->broken;
    return status;
}

shmb_status shmb_open_end(const shmb_runner *r, shmb_status status) {
    return r && r->default_advice && (shmb_status_lacks_host(status) || status == SHMB_TIMEOUT)
               ? SHMB_OK
               : status;
}

shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out) {
    double timeout;
    if (!out) return SHMB_INVALID;
    shmb_status status = shmb_open_slice(url, options, HUGE_VAL, &timeout, out);
    if (*out) (*out)->reports = true;
    return shmb_open_end(*out, status);
}

void shmb_close(shmb_runner *r) {
    if (!r) return;
    if (r->kind) r->kind->close(r);
    shmb_builder_free(&r->builder);
    free(r->default_advice);
    free(r);
}
