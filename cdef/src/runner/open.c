#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runner/default.h"
#include "runner/nonblocking.h"

static shmb_status connect_by_url(shmb_runner *r, const char *text, shmb_options *options,
                                  double slice) {
    struct url url;
    if (!text) text = secure_getenv("SHMBRIDGE_URL");
    if (!text || !*text)
        return shmb_fail(&r->broken, SHMB_INVALID,
                         "no URL: pass one, e.g. shm://NAME, or set the environment variable "
                         "SHMBRIDGE_URL (set-uid programs ignore it)");
    if (shmb_url_split(text, &url, options, &r->broken)) return r->broken.status;
    snprintf(r->where, sizeof r->where, "%s://%s", url.scheme, url.where);
    if (options->default_advice &&
        shmb_default_open(&r->default_advice, options->default_advice, &r->broken))
        return r->broken.status;
    shmb_options its = *options;
    if (its.connect_timeout > slice) its.connect_timeout = slice;
    r->until = later(shmb_clock_ns(), shmb_clock_span(slice));
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
