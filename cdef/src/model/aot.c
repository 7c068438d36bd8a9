/* Models that were compiled ahead of time: a shared library of the user's that exports
 * shmb_model_entry. */
#include "model/model.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/library.h"
#include "shmbridge/model.h"

static const char entry_name[] = "shmb_model_entry";

struct loaded {
    void *library, *state;
    const shmb_model *model;
    shmb_tensor *outputs; /* what run writes to; those of known sizes keep their memory */
    uint8_t *memory;
};

/* what: "input" or "output". */
static shmb_status check_count(const struct model *m, const char *what, const shmb_port *from,
                               int64_t count, struct error *e) {
    if (count >= 0 && count <= UINT16_MAX && (!count || from)) return SHMB_OK;
    return shmb_fail(e, SHMB_INVALID, "%.200s: expected 0 to %d %ss, found %lld%s", m->file,
                     UINT16_MAX, what, (long long)count, from ? "" : " and no pointer to them");
}

static shmb_status read_port(const struct model *m, const char *what, uint32_t i,
                             const shmb_port *from, struct port *to, struct error *e) {
    if (!from->name || !shmb_dtype_size(from->dtype) || from->rank < 0 ||
        from->rank > SHMB_MAX_RANK || (from->rank && !from->dims))
        return shmb_fail(e, SHMB_INVALID,
                         "%.200s: %s %u: expected a name, a dtype, a rank of 0 to %d and that many "
                         "dims, found \"%.60s\", %s, rank %d%s",
                         m->file, what, i, SHMB_MAX_RANK, from->name ? from->name : "",
                         shmb_dtype_name(from->dtype), from->rank, from->dims ? "" : ", no dims");
    to->dtype = from->dtype;
    to->rank = from->rank;
    for (int k = 0; k < to->rank; k++)
        if ((to->dims[k] = from->dims[k]) < -1)
            shmb_fail(e, SHMB_INVALID,
                      "%.200s: %s \"%.60s\": expected dims of -1 (any size) or more, found %lld",
                      m->file, what, from->name, (long long)to->dims[k]);
    if (!(to->name = strdup(from->name)))
        shmb_fail(e, SHMB_NO_MEMORY, "no memory for the model's %ss", what);
    return e->status;
}

static shmb_status read_ports(const struct model *m, const char *what, const shmb_port *from,
                              struct port *to, uint32_t count, struct error *e) {
    char names[300];
    struct field *fields = calloc(count + 1u, sizeof *fields);
    if (!fields) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for the model's %ss", what);
    for (uint32_t i = 0; i < count && !read_port(m, what, i, &from[i], &to[i], e); i++)
        fields[i] = (struct field){.name = to[i].name, .name_bytes = (uint32_t)strlen(to[i].name)};
    snprintf(names, sizeof names, "%.200s: the %ss' names", m->file, what);
    if (!e->status) shmb_names_check(fields, count, SHMB_INVALID, names, e);
    free(fields);
    return e->status;
}

static bool sizes_known(const struct port *p) {
    for (int i = 0; i < p->rank; i++)
        if (p->dims[i] < 0) return false;
    return true;
}

/* Elements, and bytes to a multiple of 64, of a tensor; false when there are too many. */
static bool aot_measure(shmb_dtype dtype, int32_t rank, const int64_t *dims, int64_t *size,
                        size_t *bytes) {
    struct field f = {.dtype = (uint8_t)dtype, .kind = SHMB_TENSOR, .rank = (uint8_t)rank};
    struct extent x;
    if (!shmb_field_place(&f, dims, 0, &x)) return false;
    *size = x.size;
    *bytes = (x.end + 63) & ~(size_t)63;
    return true;
}

/* Gives every output whose sizes are known its memory, once. */
static shmb_status make_outputs(struct model *m, struct loaded *s, struct error *e) {
    size_t total = 64, bytes = 0;
    s->outputs = calloc(m->output_count + 1, sizeof *s->outputs);
    for (uint32_t i = 0; s->outputs && i < m->output_count; i++) {
        const struct port *p = &m->outputs[i];
        s->outputs[i] = (shmb_tensor){.name = p->name, .dtype = p->dtype, .rank = p->rank};
        if (!sizes_known(p)) continue;
        s->outputs[i].dims = p->dims;
        if (!aot_measure(p->dtype, p->rank, p->dims, &s->outputs[i].size, &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return shmb_fail(e, SHMB_INVALID,
                             "%.200s: output \"%.60s\" is larger than memory can be", m->file,
                             p->name);
    }
    s->memory = s->outputs ? aligned_alloc(64, total) : NULL;
    if (!s->memory) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for the model's outputs");
    uint8_t *at = s->memory;
    for (uint32_t i = 0; i < m->output_count; i++) {
        shmb_tensor *t = &s->outputs[i];
        if (!t->dims && t->rank) continue;
        t->data = at;
        aot_measure(t->dtype, t->rank, t->dims, &t->size, &bytes);
        at += bytes;
    }
    return SHMB_OK;
}

static void aot_end(struct model *m) {
    struct loaded *s = m->state;
    if (s->state && s->model->close) s->model->close(s->state);
    if (s->library) dlclose(s->library);
    free(s->outputs);
    free(s->memory);
    free(s);
    m->state = NULL;
}

/* A library for another processor: dlopen says that there is no such file. */
static shmb_status check_machine(const char *file, struct error *e) {
#ifdef __aarch64__
    const unsigned ours = EM_AARCH64;
#else
    const unsigned ours = EM_X86_64;
#endif
    Elf64_Ehdr head;
    FILE *f = fopen(file, "re");
    bool elf =
        f && fread(&head, sizeof head, 1, f) == 1 && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
    if (f) fclose(f);
    /* dlopen says what else is wrong */
    if (!elf || (head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_machine == ours)) return SHMB_OK;
    return shmb_fail(e, SHMB_INVALID,
                     "%.300s: expected a library for this processor (ELF machine %u), found one "
                     "for another (%u): compile the model here",
                     file, ours, (unsigned)head.e_machine);
}

static shmb_status begin(struct model *m, struct loaded *s, const char *weights, struct error *e) {
    shmb_model_entry_fn entry;
    const struct library wanted = {.what = "the compiled model",
                                   .file = m->file,
                                   .hint = "expected a library made by shmbridge compile"};
    if (check_machine(m->file, e)) return e->status;
    if (!(s->library = shmb_library_open(&wanted, e))) return e->status;
    void *address = shmb_library_symbol(s->library, m->file, entry_name, e);
    if (!address) return e->status;
    memcpy(&entry, &address, sizeof entry); /* ISO C has no cast from an object to a function */
    const shmb_model *model = s->model = entry();
    if (!model)
        return shmb_fail(e, SHMB_INVALID, "%.200s: expected a model from %s, found NULL", m->file,
                         entry_name);
    if (model->size != sizeof *model)
        return shmb_fail(e, SHMB_INCOMPATIBLE,
                         "%.200s: expected a shmb_model of %zu bytes, found %zu: compile it again "
                         "with this version's headers",
                         m->file, sizeof *model, model->size);
    if (!model->run)
        return shmb_fail(e, SHMB_INVALID, "%.200s: expected a function run, found NULL", m->file);
    if (check_count(m, "input", model->inputs, model->input_count, e) ||
        check_count(m, "output", model->outputs, model->output_count, e) ||
        shmb_model_ports(m, (size_t)model->input_count, (size_t)model->output_count, e) ||
        read_ports(m, "input", model->inputs, m->inputs, m->input_count, e) ||
        read_ports(m, "output", model->outputs, m->outputs, m->output_count, e))
        return e->status;
    if (!m->output_count)
        return shmb_fail(e, SHMB_INVALID, "%.200s: expected at least one output, found none",
                         m->file);
    if (make_outputs(m, s, e)) return e->status;
    if (!model->open && weights)
        return shmb_fail(e, SHMB_INVALID,
                         "weights=%.100s: the model %.200s takes no file of weights", weights,
                         m->file);
    const char *why = model->open ? model->open(weights, &s->state) : NULL;
    return why ? shmb_fail(e, SHMB_INVALID, "the model %.100s does not start: %.300s", m->file, why)
               : SHMB_OK;
}

static shmb_status aot_open(struct model *m, struct url *url, struct error *e) {
    struct loaded *s = m->state = calloc(1, sizeof *s);
    if (!s) return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a model");
    if (begin(m, s, shmb_url_take(url, "weights"), e)) {
        s->state = NULL; /* what did not open is not closed */
        aot_end(m);
    }
    return e->status;
}

/* Is this output, which the model made itself, as it declared it? */
static shmb_status aot_check(const struct model *m, const struct port *p, const shmb_tensor *t,
                             struct error *e) {
    int64_t size;
    size_t bytes;
    bool fits = t->dims;
    for (int k = 0; fits && k < p->rank; k++)
        fits = t->dims[k] >= 0 && (p->dims[k] < 0 || p->dims[k] == t->dims[k]);
    if (!fits || !aot_measure(p->dtype, p->rank, t->dims, &size, &bytes) || size != t->size)
        return shmb_fail(e, SHMB_MODEL,
                         "the model %.200s gave \"%.60s\" dims or a size that it did not declare",
                         m->file, p->name);
    if (size && (!t->data || (uintptr_t)t->data % 64))
        return shmb_fail(
            e, SHMB_MODEL,
            "the model %.200s gave \"%.60s\" at %p: expected memory that is 64-byte aligned",
            m->file, p->name, t->data);
    return SHMB_OK;
}

static shmb_status aot_run(struct model *m, bool changed, struct error *e) {
    (void)changed;
    const struct loaded *s = m->state;
    const char *why = s->model->run(s->state, m->given, s->outputs);
    if (why) return shmb_fail(e, SHMB_MODEL, "%.500s", why);
    for (uint32_t i = 0; i < m->output_count; i++) {
        const struct port *p = &m->outputs[i];
        shmb_tensor *t = &m->results[i];
        *t = s->outputs[i];
        t->dtype = p->dtype;
        t->rank = p->rank;
        if (t->dims != p->dims && t->rank && aot_check(m, p, t, e)) return e->status;
    }
    return SHMB_OK;
}

const struct backend shmb_aot_backend = {
    .known = "weights, agent.NAME, ", .open = aot_open, .run = aot_run, .close = aot_end};
