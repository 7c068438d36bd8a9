#include "spec.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    shmb_dtype dtype;
} types[] = {{"float", SHMB_FLOAT32},  {"double", SHMB_FLOAT64},  {"int8_t", SHMB_INT8},
             {"int16_t", SHMB_INT16},  {"int32_t", SHMB_INT32},   {"int64_t", SHMB_INT64},
             {"uint8_t", SHMB_UINT8},  {"uint16_t", SHMB_UINT16}, {"uint32_t", SHMB_UINT32},
             {"uint64_t", SHMB_UINT64}};

enum { TYPES = sizeof types / sizeof *types };

const char *spec_type(shmb_dtype dtype) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name that comes twice among names[count], which it sorts; NULL when there is none. */
static const char *name_twice(const char **names, size_t count) {
    if (count) qsort(names, count, sizeof *names, compare);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return names[i];
    return NULL;
}

shmb_status line_read(struct line *out, const void *text, size_t size, struct error *e) {
    struct json j;
    struct json_text key;
    *out = (struct line){.kind = LINE_OTHER};
    json_start(&j, text, size);
    json_object(&j);
    while (json_key(&j, &key)) {
        if (json_is(&key, "context") && json_string(&j, &out->context)) out->kind = LINE_CONTEXT;
        else if (json_is(&key, "observation") && json_int(&j, &out->observation))
            out->kind = LINE_OBSERVATION;
        else if (json_skip(&j) && json_is(&key, "features")) out->kind = LINE_HEADER;
    }
    return json_end(&j) ? SHMB_OK : json_fail(&j, e, "a line of JSON");
}

/* ---- The header line ----------------------------------------------------------------------------------------- */

static bool read_type(struct json *j, struct spec_field *f) {
    struct json_text type;
    json_peek(j);
    const uint8_t *at = j->at;
    if (!json_string(j, &type)) return false;
    for (int i = 0; i < TYPES; i++)
        if (json_is(&type, types[i].name)) return f->dtype = types[i].dtype, true;
    j->at = at;
    return json_wrong(j, "a type: float, double, int8_t to int64_t or uint8_t to uint64_t");
}

static bool read_shape(struct json *j, struct spec_field *f) {
    for (json_array(j); json_element(j);) {
        int64_t n;
        if (f->rank == SHMB_MAX_RANK) return json_wrong(j, "a shape of at most 8 sizes");
        if (!json_int(j, &n)) return false;
        if (n < 0) return json_wrong(j, "a size of 0 or more");
        f->dims[f->rank++] = n;
    }
    return !j->expected;
}

/* Elements and bytes; a size of 0 makes up for any other. */
static bool measure(struct spec_field *f) {
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
    enum { NAME = 1, TYPE = 2, SHAPE = 4, PORT = 8 };
    struct json_text key, name = {0};
    int seen = 0;
    *f = (struct spec_field){0};
    json_object(j);
    while (json_key(j, &key)) {
        int this = json_is(&key, "name")    ? NAME
                   : json_is(&key, "type")  ? TYPE
                   : json_is(&key, "shape") ? SHAPE
                   : json_is(&key, "port")  ? PORT
                                            : 0;
        if (seen & this) return json_wrong(j, "each key of a tensor once");
        seen |= this;
        if (this == NAME) json_string(j, &name);
        else if (this == TYPE) read_type(j, f);
        else if (this == SHAPE) read_shape(j, f);
        else if (this == PORT) json_int(j, &f->port);
        else json_skip(j);
    }
    if (j->expected) return false;
    if ((seen & (NAME | TYPE | SHAPE)) != (NAME | TYPE | SHAPE))
        return json_wrong(j, "a tensor with name, type and shape");
    if (!measure(f)) return json_wrong(j, "a shape whose bytes can be counted");
    f->name = *names;
    if (!json_name(&name, *names))
        return json_wrong(j, "a name that is not empty, UTF-8, and without a zero byte");
    *names += name.size + 1;
    return true;
}

static bool read_features(struct json *j, struct spec *s, char **names) {
    uint32_t i = 0;
    for (json_array(j); json_element(j); i++) {
        if (!read_field(j, &s->features[i], names)) return false;
        if (__builtin_add_overflow(s->bytes, s->features[i].bytes, &s->bytes))
            return json_wrong(j, "shapes whose bytes can be counted");
    }
    s->count = i;
    return !j->expected;
}

/* Passes over the whole line, so that the features are counted before memory is taken. */
static bool count_features(struct json *j, uint32_t *count) {
    struct json_text key;
    bool found = false;
    *count = 0;
    json_object(j);
    while (json_key(j, &key)) {
        if (json_is(&key, "features")) {
            if (found) return json_wrong(j, "one list of features");
            found = true;
            for (json_array(j); json_element(j) && json_skip(j);) ++*count;
        } else json_skip(j);
    }
    return json_end(j) && (found || json_wrong(j, "an object with \"features\""));
}

static bool read_all(struct json *j, struct spec *s, char *names) {
    struct json_text key;
    json_object(j);
    while (json_key(j, &key)) {
        if (json_is(&key, "features")) read_features(j, s, &names);
        else if (json_is(&key, "advice")) {
            if (s->has_advice) return json_wrong(j, "one advice");
            s->has_advice = read_field(j, &s->advice, &names);
        } else json_skip(j);
    }
    return json_end(j);
}

shmb_status spec_read(struct spec *out, const void *text, size_t size, struct error *e) {
    struct json j;
    uint32_t count;
    *out = (struct spec){0};
    json_start(&j, text, size);
    if (!count_features(&j, &count)) return json_fail(&j, e, "the header line");
    /* The names, each shorter than its text with its quotes, lie behind the fields and the pointers that are sorted. */
    size_t bytes = (sizeof *out->features + sizeof(char *)) * count;
    out->features = malloc(bytes + size);
    if (!out->features)
        return fail(e, SHMB_NO_MEMORY, "no memory for the %u tensors of a header line", count);
    const char **sorted = (const char **)(out->features + count);
    json_start(&j, text, size);
    if (!read_all(&j, out, (char *)(sorted + count))) json_fail(&j, e, "the header line");
    else {
        for (uint32_t i = 0; i < count; i++) sorted[i] = out->features[i].name;
        const char *twice = name_twice(sorted, count);
        if (!twice) return SHMB_OK;
        fail(e, SHMB_CORRUPT, "the header line: expected each name once, found \"%.100s\" twice",
             twice);
    }
    spec_free(out);
    return e->status;
}

void spec_free(struct spec *s) {
    free(s->features);
    *s = (struct spec){0};
}
