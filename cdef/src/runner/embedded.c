/* Schemes that this library lacks: Python's, in this process. The library that `shmbridge embed`
 * builds for a Python has the same functions as this one; each runner here asks one of there. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/library.h"
#include "runner/local.h"
#include "runner/nonblocking.h"

/* What is called over there. */
#define PYTHON(X)                                                                                  \
    X(version)                                                                                     \
    X(open)                                                                                        \
    X(close)                                                                                       \
    X(feature)                                                                                     \
    X(feature_ragged)                                                                              \
    X(set_string)                                                                                  \
    X(set_strings)                                                                                 \
    X(evaluate_as) X(set_deadline) X(interrupt) X(advice_count) X(advice_at) X(error_message)
#define POINTER(name) __typeof__(shmb_##name) *name;
#define NAME(name) "shmb_" #name,
static struct {
    PYTHON(POINTER)
} python;
static const char *const names[] = {PYTHON(NAME)};

struct state {
    struct local local;
    shmb_runner *its;
    _Atomic int forwarded; /* interrupts that it may still have to report */
    int64_t *lengths;      /* of a list's rows, for one call */
    const char **texts;
    int64_t row_room;
    shmb_tensor *advice;
    int64_t advice_room;
};

/* Loads the library, once it is there. */
static bool embedded_load(struct error *e) {
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    static const char *const in_path[] = {"libshmbridge-python.so", NULL};
    static const struct library which = {.what = "the library for those of Python",
                                         .variable = "SHMBRIDGE_PYTHON_LIBRARY",
                                         .package = "shmbridge/lib/libshmbridge-python.so",
                                         .names = in_path,
                                         .hint = "build it with `shmbridge embed`"};
    static bool loaded;
    pthread_mutex_lock(&loading);
    void *found[sizeof names / sizeof *names],
        *library = loaded ? NULL : shmb_library_open(&which, e);
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++)
        if (!(found[i] = shmb_library_symbol(library, "libshmbridge-python.so", names[i], e)))
            library = NULL;
    if (library) {
        _Static_assert(sizeof found == sizeof python, "a name for each function");
        memcpy(&python, found, sizeof python);
        loaded = python.open != shmb_open && strcmp(python.version(), shmb_version()) == 0;
        if (python.open == shmb_open)
            shmb_fail(e, SHMB_UNSUPPORTED,
                      "the library named for those of Python is this very one: build that with "
                      "`shmbridge embed`");
        else if (!loaded)
            shmb_fail(e, SHMB_UNSUPPORTED,
                      "libshmbridge-python.so is of version %.40s, this library %s: run `shmbridge "
                      "embed` with its Python",
                      python.version(), shmb_version());
    }
    bool ok = loaded;
    pthread_mutex_unlock(&loading);
    return ok;
}

static void embedded_release(struct state *s) {
    shmb_local_close(&s->local);
    free(s->lengths);
    free(s->texts);
    free(s->advice);
    free(s);
}

static shmb_status embedded_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    struct error why;
    if (!embedded_load(&why)) {
        char known[80] = "";
        shmb_kind_names(known, sizeof known);
        return shmb_fail(&r->broken, SHMB_UNSUPPORTED,
                         "there is no runner for \"%.40s://\": expected %s, one that the program "
                         "registers, or one of Python's (grpc, python, ...), but %s",
                         url->scheme, known, why.message);
    }
    struct state *s = calloc(1, sizeof *s);
    if (!s) return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    char text[2 * URL_ROOM];
    int scheme = snprintf(text, sizeof text, "%s://", url->scheme);
    shmb_url_where(url, text + scheme, sizeof text - (size_t)scheme);
    shmb_status status = python.open(text, options, &s->its);
    if (status) shmb_fail(&r->broken, status, "%s", python.error_message(s->its));
    else if (shmb_local_open(&s->local, r) == SHMB_OK) return SHMB_OK;
    python.close(s->its);
    embedded_release(s);
    return r->broken.status;
}

/* Room for a list's rows. */
static bool embedded_grow(struct state *s, int64_t rows) {
    if (rows <= s->row_room) return true;
    free(s->lengths);
    free(s->texts);
    s->lengths = calloc((size_t)rows, sizeof *s->lengths);
    s->texts = calloc((size_t)rows, sizeof *s->texts);
    s->row_room = s->lengths && s->texts ? rows : 0;
    return s->row_room;
}

static bool embedded_give(struct state *s, const shmb_tensor *f) {
    size_t bytes = (size_t)f->size * shmb_dtype_size(f->dtype);
    void *to = NULL;
    if (f->kind == SHMB_STRING) {
        python.set_string(s->its, f->name, f->data, f->size);
        return true;
    }
    if (f->kind != SHMB_TENSOR) {
        int64_t rows = f->dims[0];
        if (!embedded_grow(s, rows)) return false;
        for (int64_t i = 0; i < rows; i++) {
            s->lengths[i] = f->offsets[i + 1] - f->offsets[i];
            s->texts[i] = (const char *)f->data + f->offsets[i];
        }
        if (f->kind == SHMB_STRINGS) {
            python.set_strings(s->its, f->name, rows, s->texts, s->lengths);
            return true;
        }
        to = python.feature_ragged(s->its, f->name, f->dtype, rows, s->lengths, f->rank,
                                   f->dims + 2);
    } else {
        to = python.feature(s->its, f->name, f->dtype, f->rank, f->dims);
    }
    if (to && bytes) memcpy(to, f->data, bytes);
    return to;
}

static shmb_status embedded_ask(shmb_runner *r, struct state *s, const shmb_tensor *features) {
    for (uint32_t i = 0; i < r->builder.count; i++)
        if (!embedded_give(s, &features[i])) return SHMB_NO_MEMORY;
    return python.evaluate_as(s->its, r->want);
}

static shmb_status embedded_start(shmb_runner *r) {
    struct state *s = r->kind_state;
    const shmb_tensor *features = shmb_local_features(r);
    if (!features) return r->error.status;
    python.set_deadline(s->its, r->deadline_ns ? shmb_runner_deadline(r) : 0);
    shmb_status status = embedded_ask(r, s, features);
    if (status == SHMB_INTERRUPTED && atomic_exchange(&s->forwarded, 0) &&
        !atomic_exchange(&r->interrupted, 0))
        /* that was meant for an earlier question, and has been said */
        status = embedded_ask(r, s, features);
    if (status) {
        shmb_fail(&r->error, status, "%s", python.error_message(s->its));
        if (shmb_status_lasts(status)) r->broken = r->error;
        return status;
    }
    int64_t count = python.advice_count(s->its);
    if (count > s->advice_room) {
        free(s->advice);
        s->advice = calloc((size_t)count, sizeof *s->advice);
        s->advice_room = s->advice ? count : 0;
        if (!s->advice) return shmb_fail(&r->error, SHMB_NO_MEMORY, "no memory for the advice");
    }
    for (int64_t i = 0; i < count; i++) python.advice_at(s->its, i, &s->advice[i]);
    shmb_local_answer(r, s->advice, (uint32_t)count);
    return SHMB_OK;
}

static void embedded_interrupt(shmb_runner *r) {
    struct state *s = r->kind_state;
    atomic_store(&s->forwarded, 1);
    python.interrupt(s->its);
}

static void embedded_close(shmb_runner *r) {
    struct state *s = r->kind_state;
    python.close(s->its);
    embedded_release(s);
}

const struct runner_ops shmb_embedded_runner = {.scheme = "",
                                                .open = embedded_open,
                                                .start = embedded_start,
                                                LOCAL_KIND,
                                                .close = embedded_close,
                                                .interrupt = embedded_interrupt};
