/* The JSON lines of LLVM's training logs and interactive channel, which ML-Compiler-Bridge's
 * bitstream shares. Keys may come in any order; unknown keys, and lines without any of these keys,
 * are no error. */
#ifndef SHMB_SPEC_H
#define SHMB_SPEC_H

#include "text/json_reader.h"

enum line_kind { LINE_OTHER, LINE_HEADER, LINE_CONTEXT, LINE_OBSERVATION };

struct line {
    enum line_kind kind;
    struct json_text context; /* of LINE_CONTEXT: points into the line */
};

/* Which line it is. Errors: CORRUPT (no JSON object, or a value of the wrong type). */
shmb_status shmb_line_read(struct line *out, const void *text, size_t size, struct error *e);

struct spec_field {
    const char *name; /* UTF-8, zero-terminated, owned by the spec */
    shmb_dtype dtype; /* one that has a name there */
    int32_t rank;
    int64_t dims[SHMB_MAX_RANK]; /* each >= 0 */
    int64_t size;                /* elements */
    size_t bytes;
};

struct spec {
    uint32_t count;
    struct spec_field *features; /* no name comes twice */
    size_t bytes;                /* of all features back to back */
    bool has_advice;
    struct spec_field advice;
    /* "want":"float32", or "any": who asks is a runner of ours, in a bitstream; other words are no
     * error */
    bool has_want;
    shmb_dtype want;
};

/* Reads a header line. Takes memory in proportion to the line's length only. Errors: CORRUPT (no
 * header, a type, rank, shape or name that cannot be, sizes that overflow), NO_MEMORY. Free *out
 * after SHMB_OK; after an error it is empty. */
shmb_status shmb_spec_read(struct spec *out, const void *text, size_t size, struct error *e);
void shmb_spec_free(struct spec *s);

#endif
