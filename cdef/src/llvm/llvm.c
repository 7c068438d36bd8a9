/* LLVM's interactive channel. A header line names the tensors; then each observation is a
 * question and its answer the advice's raw bytes. Lines that are not understood are dropped, and
 * the next one is read. A compiler that gets no answer, or one that it did not foresee, spins,
 * blocks or crashes: so every question gets an answer, and every answer is checked. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/default.h"
#include "llvm/state.h"

enum { LONGEST_LINE = 1 << 20, LONGEST_OBSERVATION = 1 << 30 };
/* ---- Bytes to questions ---- */

/* Drops what is not understood; it is said once in a process. */
static void llvm_skip(struct llvm *s, const char *why) {
    static _Atomic bool said;
    s->counted.info.skipped++;
    if (!atomic_exchange(&said, true))
        fprintf(stderr,
                "shmbridge: LLVM's channel: %s: continuing with the next line (reported once)\n",
                why);
}

/* All of the next line or of an observation's tensors, with the newline; NULL when more bytes
 * are needed or *e says what is wrong. */
static const uint8_t *gather(struct llvm *s, const uint8_t *bytes, size_t size, size_t *used,
                             size_t *length, struct error *e) {
    const uint8_t *from = bytes + *used;
    size_t there = size - *used, more = 0;
    bool whole;
    if (s->observed) {
        more = s->spec.bytes + 1 - s->part.size;
        whole = more <= there;
    } else {
        const uint8_t *newline = there ? memchr(from, '\n', there) : NULL;
        whole = newline;
        if (newline) more = (size_t)(newline - from) + 1;
    }
    if (!whole) more = there;
    *used += more;
    if (!s->observed && !s->skipping && s->part.size + more > LONGEST_LINE) {
        s->skipping = true;
        llvm_skip(s, "expected lines of at most 1 MiB, found a longer one");
    }
    if (s->skipping) {
        s->part.size = 0;
        s->skipping = !whole;
        return whole ? gather(s, bytes, size, used, length, e) : NULL;
    }
    *length = more;
    if (whole && !s->part.size) return from;
    uint8_t *to = more ? shmb_bytes_add(&s->part, more) : NULL;
    if (to) memcpy(to, from, more);
    else if (more)
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for %zu bytes from the compiler",
                  s->part.size + more);
    if (!whole || e->status) return NULL;
    *length = s->part.size;
    s->part.size = 0; /* its bytes stay until the next come */
    return s->part.data;
}

static enum decision decision_of(const struct spec_field *advice) {
    if (advice->size != 1) return OTHER;
    if (advice->dtype == SHMB_INT64 && strcmp(advice->name, "inlining_decision") == 0)
        return INLINING;
    if (advice->dtype == SHMB_INT64 && strcmp(advice->name, "index_to_evict") == 0) return EVICTION;
    return advice->dtype == SHMB_FLOAT32 && strcmp(advice->name, "priority") == 0 ? PRIORITY
                                                                                  : OTHER;
}

/* Which feature tells the default. */
static void find_hint(struct llvm *s) {
    static const char *const names[] = {NULL, "inlining_default", "mask", "li_size"};
    const char *name = names[s->decision];
    s->hint = NULL;
    s->hint_at = 0;
    for (uint32_t i = 0; name && i < s->spec.count && !s->hint; i++) {
        const struct spec_field *f = &s->spec.features[i];
        bool fits =
            f->dtype == SHMB_INT64 && (s->decision == EVICTION ? f->size > 0 : f->size == 1);
        if (fits && strcmp(f->name, name) == 0) s->hint = f;
        else s->hint_at += f->bytes;
    }
}

/* As many live ranges as the mask has; without one as the largest feature, where each has an
 * element. */
static shmb_status find_ranges(struct llvm *s, struct error *e) {
    int64_t count = 0;
    for (uint32_t i = 0; i < s->spec.count; i++)
        if (s->spec.features[i].size > count) count = s->spec.features[i].size;
    if (s->hint) count = s->hint->size;
    s->allowed.size = 0;
    if (s->decision != EVICTION || !count) return SHMB_OK;
    uint8_t *all = shmb_bytes_add(&s->allowed, (size_t)count);
    if (!all)
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for %lld live ranges", (long long)count);
    memset(all, true, (size_t)count);
    return SHMB_OK;
}

static shmb_status read_header(struct llvm *s, const uint8_t *line, size_t size, struct error *e) {
    shmb_spec_free(&s->spec);
    memset(&s->spec, 0, sizeof s->spec);
    s->hint = NULL;
    s->context.size = 0;
    if (shmb_spec_read(&s->spec, line, size, e)) return e->status;
    if (!s->spec.has_advice)
        return shmb_fail(e, SHMB_CORRUPT, "the compiler's header names no advice");
    if (s->spec.bytes >= LONGEST_OBSERVATION || s->spec.advice.bytes >= LONGEST_OBSERVATION)
        return shmb_fail(e, SHMB_CORRUPT, "the compiler's header describes more than %d bytes",
                         LONGEST_OBSERVATION);
    s->decision = decision_of(&s->spec.advice);
    find_hint(s);
    return find_ranges(s, e);
}

static shmb_status read_context(struct llvm *s, const struct json_text *context, struct error *e) {
    s->context.size = 0;
    char *to = shmb_bytes_add(&s->context, context->size + 1);
    if (!to)
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a function's name of %zu bytes",
                         context->size);
    shmb_json_copy(context, to);
    s->context.size = context->size;
    return SHMB_OK;
}

static shmb_status read_line(struct llvm *s, const uint8_t *text, size_t size, struct error *e) {
    struct line line;
    if (shmb_line_read(&line, text, size, e)) {
        llvm_skip(s, e->message);
        return e->status = SHMB_OK;
    }
    switch (line.kind) {
    case LINE_HEADER: return read_header(s, text, size, e);
    case LINE_CONTEXT: return read_context(s, &line.context, e);
    case LINE_OBSERVATION:
        if (!s->spec.has_advice)
            return shmb_fail(
                e, SHMB_CORRUPT,
                "the compiler sent an observation before the header that describes its tensors");
        s->observed = true;
        return SHMB_OK;
    case LINE_OTHER: break;
    }
    return SHMB_OK;
}

static void take_hint(struct llvm *s, const uint8_t *tensors) {
    const uint8_t *at = tensors + s->hint_at;
    s->hinted = 0;
    if (!s->hint) return;
    memcpy(&s->hinted, at, sizeof s->hinted);
    if (s->decision != EVICTION) return;
    for (size_t i = 0; i < s->allowed.size; i++, at += sizeof(int64_t))
        s->allowed.data[i] = memcmp(at, &(int64_t){0}, sizeof(int64_t)) != 0;
}

static void llvm_fill(const struct llvm *s, const uint8_t *tensors, shmb_runner *r) {
    for (uint32_t i = 0; i < s->spec.count; i++) {
        const struct spec_field *f = &s->spec.features[i];
        shmb_set(r, f->name, f->dtype, f->rank, f->dims, tensors);
        tensors += f->bytes;
    }
    shmb_set_string(r, "context", s->context.size ? (const char *)s->context.data : "",
                    (int64_t)s->context.size);
    shmb_set_string(r, "decision", s->spec.advice.name, -1);
}

static int llvm_feed(void *state, const uint8_t *bytes, size_t size, size_t *used, shmb_runner *r,
                     shmb_dtype *want, struct error *e) {
    struct llvm *s = state;
    const uint8_t *whole;
    size_t length;
    *used = 0;
    e->status = SHMB_OK;
    while ((whole = gather(s, bytes, size, used, &length, e))) {
        if (!s->observed) {
            if (read_line(s, whole, length, e)) return (int)e->status;
            continue;
        }
        bool ends = whole[length - 1] == '\n';
        s->observed = false;
        s->skipping = !ends; /* up to the next line */
        if (!ends) llvm_skip(s, "expected a newline after the tensors, found another byte");
        take_hint(s, whole);
        *want = s->spec.advice.dtype;
        s->beyond = s->left && atomic_fetch_sub(s->left, 1) <= 0;
        if (s->given_up || s->beyond) return GIVEN;
        if (!ends) {
            shmb_fail(
                &s->unreadable, SHMB_CORRUPT,
                "expected a newline after an observation's %zu bytes of tensors, found byte %d",
                length - 1, whole[length - 1]);
            return GIVEN;
        }
        if (r) llvm_fill(s, whole, r);
        return ASK;
    }
    return e->status ? (int)e->status : MORE;
}

/* ---- Life ---- */

static void llvm_end(void *state) {
    struct llvm *s = state;
    shmb_spec_free(&s->spec);
    memset(&s->spec, 0, sizeof s->spec);
    s->hint = NULL;
    s->part.size = s->context.size = 0;
    s->observed = false;
    s->unreadable.status = SHMB_OK;
    s->times = 0;
    s->given_up = s->skipping = false;
}

static void llvm_free(void *state) {
    struct llvm *s = state;
    shmb_spec_free(&s->spec);
    shmb_bytes_free(&s->part);
    shmb_bytes_free(&s->context);
    shmb_bytes_free(&s->allowed);
    free(s->fallback);
    free(s);
}

void *shmb_llvm_new(const char *fallback, struct error *e) {
    struct llvm *s = calloc(1, sizeof *s);
    if (!s) {
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for a conversation");
        return NULL;
    }
    if (!*fallback || !shmb_default_open(&s->fallback, fallback, e)) return s;
    llvm_free(s);
    return NULL;
}

void shmb_llvm_limit(void *state, _Atomic int64_t *left) { ((struct llvm *)state)->left = left; }

const struct protocol shmb_llvm_protocol = {.feed = llvm_feed,
                                            .answer = shmb_llvm_answer,
                                            .end = llvm_end,
                                            .free = llvm_free,
                                            .resumes = true};
