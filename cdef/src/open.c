#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "default.h"
#include "host.h"
#include "recovery.h"

/* The kinds that this library speaks. */
static const struct runner_kind *const kinds[] = {&shm_runner, &pipe_runner, &onnx_runner,
                                                  &aot_runner, &tflite_runner};

enum { CONNECT_SECONDS = 10 };

const char *shmb_version(void) {
    static const char version[] = SHMB_VERSION_TEXT;
    return version;
}

const struct runner_kind *kind_find(const char *scheme) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->scheme, scheme) == 0) return kinds[i];
    return NULL;
}

bool shmb_scheme_known(const char *scheme) { return kind_find(scheme) || plugin_find(scheme); }

shmb_status runner_connect(shmb_runner *r, struct url *url, const shmb_options *options) {
    shmb_options its = *options;
    const struct runner_kind *kind = kind_find(url->scheme);
    if (!kind) kind = plugin_find(url->scheme);
    if (!kind) kind = &embedded_runner;
    its.retries = 0;
    its.backoff = 0;
    its.default_advice = NULL;
    if (kind->open(r, url, &its) == SHMB_OK) r->kind = kind;
    return r->broken.status;
}

static shmb_status connect_by_url(shmb_runner *r, const char *text, shmb_options *options,
                                  double slice, double *timeout) {
    struct url url;
    if (!text) text = getenv("SHMBRIDGE_URL");
    if (!text || !*text)
        return fail(
            &r->broken, SHMB_INVALID,
            "no URL: pass one, e.g. shm://NAME, or set the environment variable SHMBRIDGE_URL");
    if (url_split(text, &url, options, &r->broken)) return r->broken.status;
    if (options->default_advice &&
        default_open(&r->default_advice, options->default_advice, &url, &r->broken))
        return r->broken.status;
    *timeout = options->connect_timeout =
        options->connect_timeout ? options->connect_timeout : CONNECT_SECONDS;
    double seconds = *timeout > slice ? slice : *timeout;
    shmb_set_deadline(r, options->deadline);
    if (options->retries) return recovery_open(r, text, options, seconds);
    options->connect_timeout = seconds;
    return runner_connect(r, &url, options);
}

static shmb_status check(const shmb_options *o, struct error *e) {
    if (o->size < sizeof o->size || o->size > sizeof *o)
        return fail(e, SHMB_INVALID,
                    "shmb_options.size is %zu, expected sizeof(shmb_options), here %zu", o->size,
                    sizeof *o);
    if (o->size > offsetof(shmb_options, wait) && (unsigned)o->wait > SHMB_WAIT_BLOCK)
        return fail(e, SHMB_INVALID, "shmb_options.wait is %d, expected a shmb_wait", (int)o->wait);
    if (o->size > offsetof(shmb_options, retries) && o->retries < 0)
        return fail(e, SHMB_INVALID, "shmb_options.retries is %d, expected 0 or more",
                    (int)o->retries);
    if (o->size > offsetof(shmb_options, backoff) && !(o->backoff >= 0))
        return fail(e, SHMB_INVALID, "shmb_options.backoff is %g, expected seconds, 0 or more",
                    o->backoff);
    return SHMB_OK;
}

shmb_status shmb_open_slice(const char *url, const shmb_options *options, double slice,
                            double *timeout, shmb_runner **out) {
    shmb_options chosen = {.size = sizeof chosen};
    shmb_runner *r = *out = runner_new();
    shmb_status status;
    if (!r) return SHMB_NO_MEMORY;
    if (options && check(options, &r->broken)) status = r->broken.status;
    else {
        if (options) memcpy(&chosen, options, options->size); /* an older caller's is shorter: */
        chosen.size = sizeof chosen; /* what the URL adds may lie behind its end */
        status = connect_by_url(r, url, &chosen, slice, timeout);
    }
    if (r->broken.status) r->error = r->broken;
    return status;
}

shmb_status shmb_open_end(const shmb_runner *r, shmb_status status) {
    return r && r->default_advice && (status_lacks_host(status) || status == SHMB_TIMEOUT) ? SHMB_OK
                                                                                           : status;
}

shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out) {
    double timeout;
    shmb_status status = shmb_open_slice(url, options, HUGE_VAL, &timeout, out);
    return shmb_open_end(*out, status);
}

void shmb_close(shmb_runner *r) {
    if (!r) return;
    if (r->kind) r->kind->close(r);
    builder_free(&r->builder);
    free(r->default_advice);
    free(r);
}
