#include "runner/default.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message/convert.h"
#include "message/dtype.h"
#include "text/json_reader.h"

struct default_advice {
    shmb_tensor number, advice; /* as it was given; as it was wanted last */
    uint64_t value, wanted;     /* the bytes of any dtype */
    char text[64];
};

static const int64_t no_dims[1];

bool shmb_status_lacks_host(shmb_status status) {
    return status == SHMB_NO_HOST || status == SHMB_BUSY || status == SHMB_HOST_GONE ||
           status == SHMB_CLOSED || status == SHMB_CORRUPT;
}

/* A JSON number and nothing else, finite and, if whole, of at most 64 bits: read alike in every
 * locale. */
static bool read_number(struct default_advice *d, const char *text) {
    static const shmb_dtype dtypes[] = {
        [JSON_INT] = SHMB_INT64, [JSON_UINT] = SHMB_UINT64, [JSON_FLOAT] = SHMB_FLOAT64};
    struct json j;
    struct shmb_json_number n;
    size_t size = strlen(text);
    shmb_json_start(&j, text, size);
    if (!shmb_json_number(&j, &n) || n.raw_size != size || size >= sizeof d->text ||
        n.kind == JSON_HUGE || !isfinite(n.value))
        return false;
    if (n.kind == JSON_FLOAT) memcpy(&d->value, &n.value, sizeof n.value);
    else d->value = n.kind == JSON_UINT ? n.u : (uint64_t)n.i;
    d->number = (shmb_tensor){
        .name = "advice", .size = 1, .dims = no_dims, .data = &d->value, .dtype = dtypes[n.kind]};
    strcpy(d->text, text);
    return true;
}

shmb_status shmb_default_open(struct default_advice **out, const char *text, struct error *e) {
    struct default_advice *d = *out = calloc(1, sizeof *d);
    if (!d) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a runner");
    if (read_number(d, text)) return SHMB_OK;
    return shmb_fail(e, SHMB_INVALID,
                     "default_advice=%.60s: expected a finite number, e.g. 0, -1 or 1.5e3", text);
}

/* Float32 gets the number that is nearest to the text, as from JSON; all others exactly it. */
static bool default_convert(const struct default_advice *d, shmb_dtype want, void *out) {
    if (want != SHMB_FLOAT32 || d->number.dtype != SHMB_FLOAT64)
        return shmb_convert_tensor(&d->number, want, out) < 0;
    float nearest = shmb_json_float((const uint8_t *)d->text, strlen(d->text));
    memcpy(out, &nearest, sizeof nearest);
    return isfinite(nearest);
}

const shmb_tensor *shmb_default_as(struct default_advice *d, shmb_dtype want) {
    d->advice = d->number;
    if (want == SHMB_ANY) return &d->advice;
    d->advice.dtype = want;
    d->advice.data = &d->wanted;
    return default_convert(d, want, &d->wanted) ? &d->advice : NULL;
}

void shmb_say(const char *where, const char *why, const char *then,
              void (*log)(void *, const char *), void *context) {
    char line[sizeof((struct error *)0)->message + 512];
    snprintf(line, sizeof line, "shmbridge: %s%s%s: %s", where, *where ? ": " : "", why, then);
    shmb_one_line(line); /* the place may be any URL */
    if (log) log(context, line);
    else fprintf(stderr, "%s\n", line);
}

void shmb_default_say(const struct default_advice *d, const char *where, const char *why,
                      void (*log)(void *, const char *), void *context) {
    char then[sizeof d->text + 64];
    snprintf(then, sizeof then, "continuing with the default advice %s (counted; reported once)",
             d->text);
    shmb_say(where, why, then, log, context);
}

void shmb_say_nothing(void *context, const char *line) { (void)context, (void)line; }

static void default_read(shmb_runner *r, uint32_t index, shmb_tensor *out) {
    (void)index;
    *out = r->default_advice->advice;
}

bool shmb_default_read_as(shmb_runner *r, shmb_dtype dtype, void *out) {
    return r->advice == default_read && default_convert(r->default_advice, dtype, out);
}

shmb_status shmb_default_take(shmb_runner *r, shmb_status failure) {
    struct default_advice *d = r->default_advice;
    bool nobody = shmb_status_lacks_host(failure) || failure == SHMB_TIMEOUT ||
                  failure == SHMB_DROPPED || failure == SHMB_MODEL;
    if (!nobody || !want_exists(r->want)) return failure;
    if (!shmb_default_as(d, r->want))
        return shmb_fail(&r->error, SHMB_INEXACT,
                         "the default advice %s is not exactly representable as %s: choose another "
                         "default, or ask for another dtype",
                         d->text, shmb_dtype_name(r->want));
    if (!r->stats.defaulted++)
        shmb_default_say(d, r->where, r->error.message, r->log, r->log_context);
    r->advice_count = 1;
    r->advice_dtype = d->advice.dtype;
    r->advice = default_read;
    return SHMB_OK;
}
