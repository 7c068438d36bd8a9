#include "text/spec.h"

#include <stdlib.h>
#include <string.h>

#include "message/dtype.h"
#include "message/message.h"

shmb_status shmb_line_read(struct line *out, const void *text, size_t size, struct error *e) {
    struct json j;
    struct json_text key;
    int64_t observation;
    *out = (struct line){.kind = LINE_OTHER};
    shmb_json_start(&j, text, size);
    shmb_json_object(&j);
    while (shmb_json_key(&j, &key)) {
        if (shmb_json_is(&key, "context") && shmb_json_string(&j, &out->context))
            out->kind = LINE_CONTEXT;
        else if (shmb_json_is(&key, "observation") && shmb_json_int(&j, &observation))
            out->kind = LINE_OBSERVATION;
        else if (shmb_json_skip(&j) && shmb_json_is(&key, "features")) out->kind = LINE_HEADER;
    }
    return shmb_json_end(&j) ? SHMB_OK : shmb_json_fail(&j, e, "a line of JSON");
}

/* ---- The header line ---- */

static bool read_type(struct json *j, struct spec_field *f) {
    struct json_text type;
    shmb_json_peek(j);
    const uint8_t *at = j->at;
    if (!shmb_json_string(j, &type)) return false;
    for (int i = 0; i < DTYPES; i++)
        if (shmb_dtypes[i].llvm && shmb_json_is(&type, shmb_dtypes[i].llvm)) {
            f->dtype = (shmb_dtype)i;
            return true;
        }
    j->at = at;
    return shmb_json_wrong(j, "a type: float, double, int8_t to int64_t or uint8_t to uint64_t");
}

static bool read_shape(struct json *j, struct spec_field *f) {
    for (shmb_json_array(j); shmb_json_element(j);) {
        int64_t n;
        if (f->rank == SHMB_MAX_RANK) return shmb_json_wrong(j, "a shape of at most 8 sizes");
        if (!shmb_json_int(j, &n)) return false;
        if (n < 0) return shmb_json_wrong(j, "a size of 0 or more");
        f->dims[f->rank++] = n;
    }
    return !j->expected;
}

/* Elements and bytes; a size of 0 makes up for any other. */
static bool spec_measure(struct spec_field *f) {
    bool empty = false, overflows = false;
    f->size = 1;
    for (int i = 0; i < f->rank; i++) {
        empty |= f->dims[i] == 0;
        overflows |= __builtin_mul_overflow(f->size, f->dims[i], &f->size);
    }
    if (empty) f->size = 0;
    return (empty || !overflows) &&
           !__builtin_mul_overflow((size_t)f->size, shmb_dtype_size(f->dtype), &f->bytes);
}

/* One {"name":…,"type":…,"port":…,"shape":…}; its name goes to *names, which moves on. */
static bool read_field(struct json *j, struct spec_field *f, char **names) {
    enum { NAME = 1, TYPE = 2, SHAPE = 4, OTHER = 8 };
    static const char *const keys[] = {"name", "type", "shape"};
    struct json_text key, name = {0};
    int seen = 0;
    *f = (struct spec_field){0};
    shmb_json_object(j);
    while (shmb_json_key(j, &key)) {
        int this = NAME;
        for (int i = 0; this != OTHER && !shmb_json_is(&key, keys[i]); i++) this <<= 1;
        if (seen & this & ~OTHER) return shmb_json_wrong(j, "each key of a tensor once");
        seen |= this;
        if (this == NAME) shmb_json_string(j, &name);
        else if (this == TYPE) read_type(j, f);
        else if (this == SHAPE) read_shape(j, f);
        else shmb_json_skip(j);
    }
    if (j->expected) return false;
    if ((seen & (NAME | TYPE | SHAPE)) != (NAME | TYPE | SHAPE))
        return shmb_json_wrong(j, "a tensor with name, type and shape");
    if (!spec_measure(f)) return shmb_json_wrong(j, "a shape whose bytes can be counted");
    f->name = *names;
    if (!shmb_json_name(&name, *names))
        return shmb_json_wrong(j, "a name that is not empty, UTF-8, and without a zero byte");
    *names += name.size + 1;
    return true;
}

static bool read_features(struct json *j, struct spec *s, char **names) {
    uint32_t i = 0;
    for (shmb_json_array(j); shmb_json_element(j); i++) {
        if (!read_field(j, &s->features[i], names)) return false;
        if (__builtin_add_overflow(s->bytes, s->features[i].bytes, &s->bytes))
            return shmb_json_wrong(j, "shapes whose bytes can be counted");
    }
    s->count = i;
    return !j->expected;
}

static void read_want(struct json *j, struct spec *s) {
    struct json_text want;
    bool text = shmb_json_peek(j) == JSON_STRING;
    if (!text) shmb_json_skip(j);
    if (!text || !shmb_json_string(j, &want)) return;
    for (int i = SHMB_ANY; i < DTYPES; i++)
        if (shmb_json_is(&want, shmb_dtypes[i].name)) s->has_want = true, s->want = (shmb_dtype)i;
}

static bool read_all(struct json *j, struct spec *s, char *names) {
    struct json_text key;
    bool found = false;
    shmb_json_object(j);
    while (shmb_json_key(j, &key)) {
        if (shmb_json_is(&key, "features")) {
            if (found) return shmb_json_wrong(j, "one list of features");
            found = read_features(j, s, &names);
        } else if (shmb_json_is(&key, "advice")) {
            if (s->has_advice) return shmb_json_wrong(j, "one advice");
            s->has_advice = read_field(j, &s->advice, &names);
        } else if (shmb_json_is(&key, "want")) read_want(j, s);
        else shmb_json_skip(j);
    }
    return shmb_json_end(j) && (found || shmb_json_wrong(j, "an object with \"features\""));
}

shmb_status shmb_spec_read(struct spec *out, const void *text, size_t size, struct error *e) {
    struct json j;
    size_t count = 0; /* of features at most: each is an object */
    *out = (struct spec){0};
    for (size_t i = 0; i < size; i++) count += ((const char *)text)[i] == '{';
    /* The names, each shorter than its text with its quotes, lie behind the fields and what is
     * checked of them. */
    size_t bytes = (sizeof *out->features + sizeof(struct field)) * count;
    out->features = malloc(bytes + size);
    if (!out->features)
        return shmb_fail(e, SHMB_NO_MEMORY, "no memory for a header line of %zu bytes", size);
    struct field *named = (struct field *)(out->features + count);
    shmb_json_start(&j, text, size);
    if (!read_all(&j, out, (char *)(named + count))) shmb_json_fail(&j, e, "the header line");
    else {
        for (uint32_t i = 0; i < out->count; i++)
            named[i] = (struct field){.name = out->features[i].name,
                                      .name_bytes = (uint32_t)strlen(out->features[i].name)};
        if (!shmb_names_check(named, out->count, SHMB_CORRUPT, "the header line", e))
            return SHMB_OK;
    }
    shmb_spec_free(out);
    return e->status;
}

void shmb_spec_free(struct spec *s) {
    free(s->features);
    *s = (struct spec){0};
}
