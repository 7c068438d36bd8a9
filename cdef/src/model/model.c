#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "message/convert.h"
#include "process/watchdog.h"
#include "runner/nonblocking.h"

enum { AGENTS = URL_OPTIONS + 1, SHAPE_TEXT = 160 };

#define ZERO UINT32_MAX /* of feature_of: the input gets a 0 */
static _Alignas(64) const char zero[64];
static const shmb_tensor zero_feature = {.size = 1, .data = zero};

struct state {
    struct local local;
    const struct backend *backend;
    struct model models[AGENTS];
    uint32_t count;
    struct model *_Atomic current; /* what computes now, for interrupt */
    shmb_tensor *advice;
    void *converted;
    size_t converted_room;
    char text[URL_ROOM]; /* of the URL, which files and agents point into */
};

shmb_status shmb_model_ports(struct model *m, size_t inputs, size_t outputs, struct error *e) {
    m->ports = calloc(inputs + outputs + 1, sizeof *m->ports);
    if (!m->ports) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    m->inputs = m->ports;
    m->outputs = m->ports + inputs;
    m->input_count = (uint32_t)inputs;
    m->output_count = (uint32_t)outputs;
    return SHMB_OK;
}

/* Frees what is common; the backend's state is closed by now. */
static void model_release(struct state *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        struct model *m = &s->models[i];
        for (uint32_t k = 0; k < m->input_count + m->output_count; k++) free(m->ports[k].name);
        free(m->ports);
        free(m->given);
        free(m->results);
        free(m->dims);
        free(m->feature_of);
    }
    shmb_local_close(&s->local);
    free(s->advice);
    free(s->converted);
    free(s);
}

static void model_close(shmb_runner *r) {
    struct state *s = r->kind_state;
    /* then locks and threads behind a model are the parent's: it is left alone */
    bool forked = s->local.inherited.forked;
    for (uint32_t i = 0; !forked && i < s->count; i++) s->backend->close(&s->models[i]);
    model_release(s);
}

/* ---- Open ---- */

/* Takes agent.NAME=FILE out of the URL; false when one agent comes twice. */
static bool take_agents(struct state *s, struct url *url) {
    if (*url->where) s->models[s->count++] = (struct model){.agent = "", .file = url->where};
    for (int i = 0; i < url->count;) {
        struct url_option o = url->options[i];
        if (strncmp(o.name, "agent.", 6) != 0) {
            i++;
            continue;
        }
        for (uint32_t k = 0; k < s->count; k++)
            if (strcmp(s->models[k].agent, o.name + 6) == 0) return false;
        s->models[s->count++] = (struct model){.agent = o.name + 6, .file = o.value};
        url->options[i] = url->options[--url->count];
    }
    return true;
}

static bool model_prepare(struct model *m) {
    m->given = calloc(m->input_count + 1, sizeof *m->given);
    m->results = calloc(m->output_count + 1, sizeof *m->results);
    m->dims = calloc(m->input_count + 1, sizeof *m->dims);
    m->feature_of = calloc(m->input_count + 1, sizeof *m->feature_of);
    if (!m->given || !m->results || !m->dims || !m->feature_of) return false;
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct port *p = &m->inputs[i];
        m->given[i] =
            (shmb_tensor){.name = p->name, .dtype = p->dtype, .rank = p->rank, .dims = m->dims[i]};
    }
    return true;
}

static shmb_status open_all(struct state *s, shmb_runner *r, const struct url *url) {
    uint32_t most = 0, opened = 0;
    for (; opened < s->count; opened++) {
        struct model *m = &s->models[opened];
        struct url options = *url; /* each takes them all */
        if (s->backend->open(m, &options, &r->broken)) break;
        if (m->output_count > most) most = m->output_count;
        if (shmb_url_done(&options, s->backend->known, &r->broken)) {
            opened++;
            break;
        }
    }
    bool enough = !r->broken.status && (s->advice = calloc(most + 1, sizeof *s->advice));
    for (uint32_t i = 0; enough && i < s->count; i++) enough = model_prepare(&s->models[i]);
    if (enough && shmb_local_open(&s->local, r) == SHMB_OK) return SHMB_OK;
    while (opened) s->backend->close(&s->models[--opened]);
    return r->broken.status ? r->broken.status
                            : shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
}

/* Opens each model that the URL names; r->kind_state is set when that went well. */
static shmb_status model_open(const struct backend *backend, shmb_runner *r, struct url *url) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    s->backend = backend;
    struct url own = *url; /* what files and agents point into must last */
    memcpy(s->text, url->text, sizeof s->text);
    own.where = s->text + (url->where - url->text);
    for (int i = 0; i < own.count; i++) {
        own.options[i].name = s->text + (url->options[i].name - url->text);
        own.options[i].value =
            *url->options[i].value ? s->text + (url->options[i].value - url->text) : "";
    }
    if (!take_agents(s, &own)) shmb_fail(&r->broken, SHMB_INVALID, "the URL names an agent twice");
    else if (!s->count)
        shmb_fail(&r->broken, SHMB_INVALID,
                  "the URL names no file: expected %s:///FILE, or %s://?agent.NAME=FILE",
                  url->scheme, url->scheme);
    else if (open_all(s, r, &own) == SHMB_OK) return SHMB_OK;
    model_release(s);
    return r->broken.status;
}

static int64_t model_expected(const shmb_runner *r, const char *agent, int64_t index,
                              shmb_port *out) {
    const struct state *s = r->kind_state;
    const struct model *m = !agent && s->count == 1 ? s->models : NULL;
    for (uint32_t i = 0; !m && i < s->count; i++)
        if (strcmp(s->models[i].agent, agent ? agent : "") == 0) m = &s->models[i];
    if (!m) return -1;
    const struct port *p = index >= 0 && index < m->input_count ? &m->inputs[index] : NULL;
    if (p) *out = (shmb_port){.name = p->name, .dtype = p->dtype, .rank = p->rank, .dims = p->dims};
    return m->input_count;
}

/* ---- Ask ---- */

/* "float32[?,300]" */
static const char *shape_text(shmb_dtype dtype, int32_t rank, const int64_t *dims,
                              char out[SHAPE_TEXT]) {
    size_t used = (size_t)snprintf(out, SHAPE_TEXT, "%s[", shmb_dtype_name(dtype));
    for (int i = 0; i < rank && used < SHAPE_TEXT; i++) {
        char size[24] = "?";
        if (dims[i] >= 0) snprintf(size, sizeof size, "%lld", (long long)dims[i]);
        used += (size_t)snprintf(out + used, SHAPE_TEXT - used, "%s%s", i ? "," : "", size);
    }
    if (used < SHAPE_TEXT - 1) strcpy(out + used, "]");
    return out;
}

/* The model that the request asks; NULL with r->error when there is none. */
static struct model *model_choose(struct state *s, shmb_runner *r, const shmb_tensor *features) {
    if (s->count == 1 && !*s->models->agent) return s->models; /* there is but one to ask */
    const char *name = "";
    size_t bytes = 0;
    for (uint32_t i = 0; i < r->builder.count; i++)
        if (features[i].kind == SHMB_STRING && strcmp(features[i].name, "agent") == 0)
            name = features[i].data, bytes = (size_t)features[i].size;
    char known[200] = "";
    for (uint32_t i = 0; i < s->count; i++) {
        const char *agent = s->models[i].agent;
        if (strlen(agent) == bytes && memcmp(agent, name, bytes) == 0) return &s->models[i];
        shmb_list_name(known, sizeof known, *agent ? agent : "(none)");
    }
    shmb_fail(&r->error, SHMB_MISMATCH,
              "the feature \"agent\" is \"%.*s\": expected one of the URL's agents: %s",
              (int)(bytes < 100 ? bytes : 100), name, known);
    return NULL;
}

static shmb_status mismatch(const struct model *m, const struct port *p, const shmb_tensor *f,
                            struct error *e) {
    char expected[SHAPE_TEXT], found[SHAPE_TEXT] = "text or a list";
    if (f->kind == SHMB_TENSOR) shape_text(f->dtype, f->rank, f->dims, found);
    return shmb_fail(e, SHMB_MISMATCH, "\"%.60s\": the model %.100s expects %s, found %s", p->name,
                     m->file, shape_text(p->dtype, p->rank, p->dims, expected), found);
}

/* MLGO's policies call the feature X "action_X", and have inputs that only their training reads. */
static uint32_t find_feature(const struct port *p, const shmb_tensor *features, uint32_t count) {
    int64_t at = shmb_tensor_named(features, count, p->name);
    if (at < 0 && strncmp(p->name, "action_", 7) == 0)
        at = shmb_tensor_named(features, count, p->name + 7);
    if (at >= 0) return (uint32_t)at;
    bool training = strcmp(p->name, "step_type") == 0 || strcmp(p->name, "reward") == 0 ||
                    strcmp(p->name, "discount") == 0;
    bool one = p->rank == 0 || (p->rank == 1 && (*p->dims == 1 || *p->dims == -1));
    return training && one ? ZERO : count;
}

static shmb_status find_inputs(struct model *m, const shmb_tensor *features, uint32_t count,
                               struct error *e) {
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct port *p = &m->inputs[i];
        char expected[SHAPE_TEXT], names[1200] = "";
        uint32_t at = m->feature_of[i] = find_feature(p, features, count);
        if (at == ZERO) continue;
        if (at == count) {
            for (uint32_t k = 0; k < count; k++)
                shmb_list_name(names, sizeof names, features[k].name);
            bool own = strcmp(p->name, "inlining_default") == 0; /* LLVM's, sent if asked to */
            return shmb_fail(e, SHMB_MISMATCH, "the model %.100s expects \"%.60s\", %s%s; found %s",
                             m->file, p->name, shape_text(p->dtype, p->rank, p->dims, expected),
                             own ? " (shmbridge run --include-default)" : "",
                             count ? names : "no features");
        }
        const shmb_tensor *f = &features[at];
        if (f->kind != SHMB_TENSOR || f->dtype != p->dtype) return mismatch(m, p, f, e);
    }
    m->placed = true;
    return SHMB_OK;
}

static bool sizes_fit(const struct port *p, const int64_t *dims) {
    for (int i = 0; i < p->rank; i++)
        if (p->dims[i] >= 0 && p->dims[i] != dims[i]) return false;
    return true;
}

/* Gives the model this request's sizes and addresses. A feature may lack the model's first dim,
 * where that may be 1. */
static shmb_status fit(struct model *m, const shmb_tensor *features, struct error *e) {
    m->expanded = false;
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct port *p = &m->inputs[i];
        const shmb_tensor *f =
            m->feature_of[i] == ZERO ? &zero_feature : &features[m->feature_of[i]];
        shmb_tensor *t = &m->given[i];
        int64_t dims[SHMB_MAX_RANK] = {1};
        bool lacks = f->rank + 1 == p->rank;
        if (f->rank) memcpy(dims + lacks, f->dims, (size_t)f->rank * sizeof *dims);
        if (f->rank + lacks != p->rank || !sizes_fit(p, dims)) return mismatch(m, p, f, e);
        size_t bytes = (size_t)p->rank * sizeof *dims;
        if (t->data != f->data || memcmp(m->dims[i], dims, bytes) != 0) {
            memcpy(m->dims[i], dims, bytes);
            t->data = f->data;
            t->size = f->size;
            m->changed = true;
        }
        m->expanded |= lacks && f != &zero_feature;
    }
    m->fitted = true;
    return SHMB_OK;
}

static shmb_status convert(struct state *s, shmb_runner *r, shmb_tensor *t) {
    size_t room = ((size_t)t->size * shmb_dtype_size(r->want) + 64) & ~(size_t)63;
    if (room > s->converted_room) {
        free(s->converted);
        s->converted = aligned_alloc(64, room);
        s->converted_room = s->converted ? room : 0;
    }
    if (!s->converted) return shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
    int64_t wrong = shmb_convert_tensor(t, r->want, s->converted);
    if (wrong >= 0) {
        const uint8_t *at = (const uint8_t *)t->data + (size_t)wrong * shmb_dtype_size(t->dtype);
        char number[32];
        return shmb_fail(
            &r->error, SHMB_INEXACT,
            "element %lld of the advice \"%.60s\", %s of dtype %s, is not exactly representable as "
            "%s: let the model return a decision, such as x > 0, or ask for %s",
            (long long)wrong, t->name, shmb_number_text(shmb_number_at(at, t->dtype), number),
            shmb_dtype_name(t->dtype), shmb_dtype_name(r->want), shmb_dtype_name(t->dtype));
    }
    t->data = s->converted;
    t->dtype = r->want;
    return SHMB_OK;
}

static void stop(void *model_state) {
    struct state *s = model_state;
    s->backend->interrupt(s->current);
}

static shmb_status compute_until(struct state *s, shmb_runner *r, struct model *m) {
    shmb_status status;
    do { /* an interrupt may stop the run that comes after the one it was for: again, then */
        if (r->interrupted && atomic_exchange(&r->interrupted, 0))
            return shmb_fail(&r->error, SHMB_INTERRUPTED, "interrupted while the model computed");
        bool changed = m->changed;
        m->changed = false;
        r->error.status = SHMB_OK;
        status = s->backend->run(m, changed, &r->error);
        /* a run that was stopped begins again, and is not stopped twice, unless this is exact */
        if (shmb_runner_is_late(r, status != SHMB_OK)) return shmb_runner_fail_late(r, NULL);
    } while (status == SHMB_INTERRUPTED);
    return status;
}

/* One run, which an interrupt or the deadline ends where the backend can be stopped. */
static shmb_status model_compute(struct state *s, shmb_runner *r, struct model *m) {
    struct watched w = {.until = r->until, .stop = stop, .context = s};
    s->current = m; /* before the look at r->interrupted: whoever sets that sees this, or is seen */
    bool watched = r->until != INT64_MAX && s->backend->interrupt && shmb_watchdog_begin(&w);
    shmb_status status = compute_until(s, r, m);
    if (watched) shmb_watchdog_end(&w);
    s->current = NULL;
    return status;
}

static shmb_status model_start(shmb_runner *r) {
    struct state *s = r->kind_state;
    const shmb_tensor *features = shmb_local_features(r);
    /* also where no model is asked: local.c compares with the request before */
    for (uint32_t i = 0; !s->local.still && i < s->count; i++) {
        s->models[i].placed &= s->local.same;
        s->models[i].fitted = false;
    }
    struct model *m = features ? model_choose(s, r, features) : NULL;
    if (!m) return r->error.status;
    if (!m->placed && find_inputs(m, features, r->builder.count, &r->error)) return r->error.status;
    if (!m->fitted && fit(m, features, &r->error)) return r->error.status;
    shmb_status status = model_compute(s, r, m);
    if (status) return status;
    for (uint32_t i = 0; i < m->output_count; i++) {
        shmb_tensor *t = &s->advice[i];
        *t = m->results[i];
        t->name = m->outputs[i].name;
        if (m->expanded && t->rank && *t->dims == 1) t->rank--, t->dims++;
    }
    if (r->want && m->output_count == 1 && s->advice->dtype != r->want && convert(s, r, s->advice))
        return r->error.status;
    shmb_local_answer(r, s->advice, m->output_count);
    return SHMB_OK;
}

static void model_interrupt(shmb_runner *r) {
    struct state *s = r->kind_state;
    struct model *m = s->current;
    if (m && s->backend->interrupt) s->backend->interrupt(m);
}

/* ---- The kinds ---- */

#define KIND(name)                                                                                 \
    static shmb_status open_##name(shmb_runner *r, struct url *url, const shmb_options *o) {       \
        (void)o;                                                                                   \
        return model_open(&shmb_##name##_backend, r, url);                                         \
    }                                                                                              \
    const struct runner_ops shmb_##name##_runner = {.scheme = #name,                               \
                                                    .open = open_##name,                           \
                                                    .start = model_start,                          \
                                                    LOCAL_KIND,                                    \
                                                    .close = model_close,                          \
                                                    .interrupt = model_interrupt,                  \
                                                    .expected = model_expected};
KIND(onnx)
KIND(aot)
KIND(tflite)
