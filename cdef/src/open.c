#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "runner.h"

/* The kinds that this library speaks. */
static const struct runner_kind *const kinds[] = {&shm_runner, &pipe_runner, &onnx_runner, &aot_runner, &tflite_runner};

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

static shmb_status connect_by_url(shmb_runner *r, const char *text, shmb_options *options, double slice, double *timeout) {
    struct url url;
    if (!text) text = getenv("SHMBRIDGE_URL");
    if (!text || !*text)
        return fail(&r->broken, SHMB_INVALID, "no URL: pass one, e.g. shm://NAME, or set the environment variable SHMBRIDGE_URL");
    if (url_split(text, &url, options, &r->broken)) return r->broken.status;
    *timeout = options->connect_timeout = options->connect_timeout ? options->connect_timeout : CONNECT_SECONDS;
    if (*timeout > slice) options->connect_timeout = slice;
    const struct runner_kind *kind = kind_find(url.scheme);
    if (!kind) kind = plugin_find(url.scheme);
    if (!kind) kind = &embedded_runner;
    shmb_set_deadline(r, options->deadline);
    if (kind->open(r, &url, options) == SHMB_OK) r->kind = kind;
    return r->broken.status;
}

shmb_status shmb_open_slice(const char *url, const shmb_options *options, double slice, double *timeout, shmb_runner **out) {
    shmb_options chosen = {.size = sizeof chosen};
    shmb_runner *r = *out = calloc(1, sizeof *r);
    if (!r) return SHMB_NO_MEMORY;
    r->builder.error = &r->stuck;
    if (options && (options->size < sizeof options->size || options->size > sizeof chosen))
        fail(&r->broken, SHMB_INVALID, "shmb_options.size is %zu, expected sizeof(shmb_options), here %zu", options->size, sizeof chosen);
    else if (options && (unsigned)options->wait > SHMB_WAIT_BLOCK)
        fail(&r->broken, SHMB_INVALID, "shmb_options.wait is %d, expected a shmb_wait", (int)options->wait);
    else {
        if (options) memcpy(&chosen, options, options->size); /* an older caller's is shorter */
        connect_by_url(r, url, &chosen, slice, timeout);
    }
    r->error = r->broken;
    return r->broken.status;
}

shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out) {
    double timeout;
    return shmb_open_slice(url, options, HUGE_VAL, &timeout, out);
}

void shmb_close(shmb_runner *r) {
    if (!r) return;
    if (r->kind) r->kind->close(r);
    builder_free(&r->builder);
    free(r);
}
