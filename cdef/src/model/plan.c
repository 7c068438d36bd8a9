/* plan:///FILE: the inlining decisions of a plan (docs/tune.md), and LLVM's own where it has none.
 * shmbridge/_llvm/plan.py writes them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message/convert.h"
#include "message/message.h"
#include "runner/local.h"

static const char magic[] = "shmbridge plan 1";
static const char *const header[] = {"compiler", "source", "sha256", "command",
                                     "score",    "before", "after",  "questions"};
enum { HEADER = sizeof header / sizeof *header, MAX_BYTES = 1 << 28, MAX_OCCURRENCE_DIGITS = 9 };

struct decision {
    uint64_t hash;
    uint32_t n;     /* the n-th question with this hash, from 1 */
    uint32_t line;  /* in the file */
    uint32_t index; /* among the file's decisions */
    uint32_t seen;  /* questions so far, in the first decision of a hash */
    int64_t advice;
};

struct plan {
    struct local local;         /* first */
    struct decision *decisions; /* sorted by hash and n */
    size_t count;
    int report; /* -1: none */
    shmb_tensor advice;
    _Alignas(8) uint8_t value[8];
};

/* ---- Reading ---- */

struct text {
    const char *name;
    char *bytes, *at; /* the file, with a zero after it; the line that comes next, NULL: none */
    uint32_t line;    /* number of the last one */
};

/* The next line without its end; NULL at the end. */
static char *next_line(struct text *t) {
    char *line = t->at, *end = line ? strchr(line, '\n') : NULL;
    t->line++;
    t->at = end ? end + 1 : NULL;
    if (end) *end = 0;
    return line;
}

static shmb_status wrong(const struct text *t, const char *expected, const char *found,
                         struct error *e) {
    return shmb_fail(e, SHMB_INVALID, "%.300s:%u: expected %s, found \"%.80s\"", t->name,
                     (unsigned)t->line, expected, found ? found : "the end");
}

static shmb_status read_header(struct text *t, struct error *e) {
    const char *line = next_line(t);
    if (strcmp(line, magic) != 0)
        return wrong(t, "\"shmbridge plan 1\" (another version? tune again)", line, e);
    for (int i = 0; i < HEADER; i++) {
        size_t n = strlen(header[i]);
        char expected[40];
        snprintf(expected, sizeof expected, "\"%s: ...\"", header[i]);
        line = next_line(t);
        if (!line || strncmp(line, header[i], n) != 0 || line[n] != ':' ||
            (line[n + 1] && line[n + 1] != ' '))
            return wrong(t, expected, line, e);
    }
    return SHMB_OK;
}

/* Reads "inline HASH OCCURRENCE ADVICE" and perhaps a comment. */
static bool read_decision(const char *line, struct decision *d) {
    static const char word[] = "inline ";
    if (strncmp(line, word, sizeof word - 1) != 0) return false;
    line += sizeof word - 1;
    if (strspn(line, "0123456789abcdef") != 16 || line[16] != ' ') return false;
    d->hash = strtoull(line, NULL, 16);
    line += 17;
    size_t digits = strspn(line, "0123456789");
    if (!digits || digits > MAX_OCCURRENCE_DIGITS || *line == '0' || line[digits] != ' ')
        return false;
    d->n = (uint32_t)strtoul(line, NULL, 10);
    line += digits + 1;
    d->advice = *line == '1';
    return (*line == '0' || *line == '1') && (!line[1] || strncmp(line + 1, "  # ", 4) == 0);
}

static int by_question(const void *a, const void *b) {
    const struct decision *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->n < y->n ? -1 : x->n > y->n;
}

static shmb_status read_decisions(struct text *t, struct plan *p, struct error *e) {
    for (size_t room = 0;;) {
        const char *line = next_line(t);
        if (!line) break;
        if (!*line || *line == '#') continue;
        if (p->count == room) {
            room = 2 * room + 64;
            struct decision *more = realloc(p->decisions, room * sizeof *more);
            if (!more) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a plan");
            p->decisions = more;
        }
        struct decision *d = &p->decisions[p->count];
        *d = (struct decision){.line = t->line, .index = (uint32_t)p->count++};
        if (!read_decision(line, d)) return wrong(t, "\"inline HASH OCCURRENCE 0\" or 1", line, e);
    }
    if (p->count) qsort(p->decisions, p->count, sizeof *p->decisions, by_question);
    for (size_t i = 1; i < p->count; i++)
        if (by_question(&p->decisions[i - 1], &p->decisions[i]) == 0)
            return shmb_fail(e, SHMB_INVALID,
                             "%.300s: expected each question once, found two of "
                             "them in lines %u and %u",
                             t->name, (unsigned)p->decisions[i - 1].line,
                             (unsigned)p->decisions[i].line);
    return SHMB_OK;
}

/* The file as a text; NULL with e. */
static char *read_file(const char *name, struct error *e) {
    FILE *file = NULL;
    struct stat status;
    char *bytes = NULL, what[400];
    snprintf(what, sizeof what, "%.300s: expected a plan", name);
    if (stat(name, &status)) shmb_fail_errno(e, what);
    else if (!S_ISREG(status.st_mode) || status.st_size > MAX_BYTES) /* opening a pipe would wait */
        shmb_fail(e, SHMB_INVALID, "%s, found no file or one of more than %d bytes", what,
                  MAX_BYTES);
    else if (!(file = fopen(name, "re"))) shmb_fail_errno(e, what);
    else if (!(bytes = calloc(1, (size_t)status.st_size + 1)))
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for a plan");
    size_t size = bytes ? fread(bytes, 1, (size_t)status.st_size, file) : 0, at = 0, n = 1;
    while (at < size && bytes[at] && n)
        at += n = shmb_utf8_character((uint8_t *)bytes + at, size - at);
    if (file) fclose(file);
    if (!bytes || at == size) return bytes;
    shmb_fail(e, SHMB_INVALID, "%s in UTF-8, found byte %d at %zu", what, (uint8_t)bytes[at], at);
    free(bytes);
    return NULL;
}

static shmb_status read_plan(const char *name, struct plan *p, struct error *e) {
    char *bytes = read_file(name, e);
    if (!bytes) return e->status;
    struct text t = {.name = name, .bytes = bytes, .at = bytes};
    if (read_header(&t, e) == SHMB_OK) read_decisions(&t, p, e);
    free(bytes);
    return e->status;
}

/* ---- The runner ---- */

static void plan_free(struct plan *p) {
    if (p->report >= 0) close(p->report);
    free(p->decisions);
    free(p);
}

static void plan_close(shmb_runner *r) {
    struct plan *p = r->kind_state;
    shmb_local_close(&p->local);
    plan_free(p);
}

static shmb_status plan_open(shmb_runner *r, struct url *url, const shmb_options *options) {
    (void)options;
    struct plan *p = calloc(1, sizeof *p);
    if (!p) return shmb_fail(&r->broken, SHMB_NO_MEMORY, "no memory for a runner");
    const char *report = shmb_url_take(url, "report");
    p->report = -1;
    if (shmb_url_done(url, "report, ", &r->broken) == SHMB_OK) read_plan(url->where, p, &r->broken);
    if (!r->broken.status && report && /* to open a pipe would wait for its reader */
        (p->report = open(report, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) < 0)
        shmb_fail_errno(&r->broken, "report");
    if (r->broken.status || shmb_local_open(&p->local, r)) plan_free(p);
    return r->broken.status;
}

/* A number that LLVM sends; false for its texts, and for what describes the whole module, which an
 * edit anywhere would change. */
static bool identifies(const shmb_tensor *feature) {
    return feature->kind == SHMB_TENSOR && strcmp(feature->name, "node_count") != 0 &&
           strcmp(feature->name, "edge_count") != 0;
}

/* The plan's decision on the question with this hash that comes now; NULL: LLVM's own. */
static const struct decision *next_decision(struct plan *p, uint64_t hash) {
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->decisions[middle].hash < hash) low = middle + 1;
        else high = middle;
    }
    struct decision *first = &p->decisions[low], *end = p->decisions + p->count;
    if (first == end || first->hash != hash || first->seen == UINT32_MAX) return NULL;
    uint32_t n = ++first->seen;
    for (struct decision *d = first; d < end && d->hash == hash && d->n <= n; d++)
        if (d->n == n) return d;
    return NULL;
}

static shmb_status plan_start(shmb_runner *r) {
    struct plan *p = r->kind_state;
    const shmb_tensor *features = shmb_local_features(r);
    const int64_t *own = NULL;
    uint64_t hash = 0;
    if (!features) return r->error.status;
    for (uint32_t i = 0; i < r->builder.count; i++) {
        const shmb_tensor *f = &features[i];
        if (!identifies(f)) continue;
        if (f->dtype != SHMB_INT64 || f->size != 1)
            return shmb_fail(&r->error, SHMB_MISMATCH,
                             "\"%.60s\": a plan expects LLVM's features for inlining, int64[1]",
                             f->name);
        const int64_t *value = f->data;
        hash = (hash ^ (uint64_t)*value) * 0x100000001b3;
        hash ^= hash >> 32;
        if (strcmp(f->name, "inlining_default") == 0) own = value;
    }
    if (!own)
        return shmb_fail(&r->error, SHMB_MISMATCH,
                         "a plan expects inlining_default of LLVM 22 or later, found none: pass "
                         "--include-default");
    const struct decision *d = next_decision(p, hash);
    if (d && p->report >= 0 && pwrite(p->report, "1", 1, d->index) != 1)
        return shmb_fail_errno(&r->error, "the plan's report");
    shmb_dtype want = r->want ? r->want : SHMB_INT64;
    if (!shmb_convert_i64(d ? d->advice : *own, want, p->value))
        return shmb_fail(&r->error, SHMB_INEXACT, "a plan's advice is 0 or 1: ask for int64");
    p->advice =
        (shmb_tensor){.name = "inlining_decision", .dtype = want, .size = 1, .data = p->value};
    shmb_local_answer(r, &p->advice, 1);
    return SHMB_OK;
}

const struct runner_ops shmb_plan_runner = {
    .scheme = "plan", .open = plan_open, .start = plan_start, LOCAL_KIND, .close = plan_close};
