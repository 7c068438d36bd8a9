/* libFuzzer: each SerDes decodes any bytes, as request and as advice of any wanted dtype. What it
 * accepts takes no more memory than its bytes justify, and encoded and decoded again is the same.
 * LLVM's lines of JSON are read on the way. */
#include <stdlib.h>
#include <string.h>

#include "host/host.h"
#include "message/message.h"
#include "serdes/codec.h"
#include "text/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const serdes[] = {"bitstream", "json", "flatbuffers"};
enum { BITSTREAM, JSON, FLATBUFFERS, SERDES };

static void check(bool holds) {
    if (!holds) abort();
}

/* Frees what it returned last time. */
static uint8_t *exact_copy(const void *data, size_t size, bool misaligned) {
    static uint8_t *kept;
    free(kept);
    kept = malloc(size + misaligned);
    check(kept);
    if (size) memcpy(kept + misaligned, data, size);
    return kept + misaligned;
}

static size_t field_bytes(const shmb_tensor *t) {
    return (size_t)t->size * shmb_dtype_size(t->dtype) +
           (t->offsets ? ((size_t)t->dims[0] + 1) * sizeof *t->offsets : 0);
}

/* Every field is one that may be, and they take memory in proportion to their bytes. */
static void check_fields(const shmb_tensor *fields, int64_t count, size_t size) {
    size_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        const shmb_tensor *t = &fields[i];
        check(t->name[0] &&
              shmb_field_valid((uint8_t)t->dtype, (uint8_t)t->kind, (uint8_t)t->rank));
        check(!t->offsets || shmb_offsets_valid(t->offsets, t->dims[0], t->dims[1]));
        bytes += field_bytes(t);
    }
    check(bytes <= 16 * size);
}

static void add_field(shmb_codec *to, const shmb_tensor *t) {
    int64_t *offsets = NULL;
    void *at = shmb_codec_add(to, t->name, t->dtype, t->kind, t->rank, t->dims, &offsets);
    check(at);
    if (t->offsets) memcpy(offsets, t->offsets, ((size_t)t->dims[0] + 1) * sizeof *offsets);
    if (t->size) memcpy(at, t->data, (size_t)t->size * shmb_dtype_size(t->dtype));
}

static void check_equal(const shmb_tensor *a, const shmb_tensor *b, bool same_name,
                        bool same_rank) {
    check(!same_name || strcmp(a->name, b->name) == 0);
    check(a->dtype == b->dtype && a->kind == b->kind && a->size == b->size &&
          (!a->offsets) == (!b->offsets));
    check(same_rank ? a->rank == b->rank : b->rank == 1 && b->dims[0] == 1);
    size_t dims = (size_t)a->rank + (a->offsets != NULL);
    if (dims) check(memcmp(a->dims, b->dims, dims * sizeof *a->dims) == 0);
    if (a->offsets)
        check(memcmp(a->offsets, b->offsets, ((size_t)a->dims[0] + 1) * sizeof *a->offsets) == 0);
    if (a->size) check(memcmp(a->data, b->data, (size_t)a->size * shmb_dtype_size(a->dtype)) == 0);
}

static void check_round_trip(int which, shmb_side side, const shmb_tensor *fields, int64_t count,
                             shmb_dtype want, shmb_codec *encoder, shmb_codec *again) {
    const void *bytes;
    size_t size;
    int64_t same;
    shmb_codec_clear(encoder);
    for (int64_t i = 0; i < count; i++) add_field(encoder, &fields[i]);
    check(shmb_codec_encode(encoder, side, want, &bytes, &size) == SHMB_OK);
    shmb_dtype wanted = side == SHMB_ADVICE ? want : SHMB_ANY;
    check(shmb_codec_decode(again, side, exact_copy(bytes, size, false), size, &wanted) == SHMB_OK);
    check(wanted == (which == FLATBUFFERS || side == SHMB_ADVICE ? want : SHMB_ANY));
    const shmb_tensor *others = shmb_codec_fields(again, &same);
    check(same == count);
    for (int64_t i = 0; i < count; i++)
        check_equal(&fields[i], &others[i],
                    side == SHMB_REQUEST || count > 1 || which == FLATBUFFERS,
                    which != BITSTREAM || side == SHMB_ADVICE || fields[i].rank);
}

static void read_lines(const uint8_t *data, size_t size) {
    struct error e = {0};
    struct line line;
    struct spec spec;
    bool read = shmb_line_read(&line, data, size, &e) == SHMB_OK;
    if (read && line.kind == LINE_CONTEXT) {
        char *context = malloc(line.context.size + 1);
        check(context);
        shmb_json_copy(&line.context, context);
        free(context);
    }
    if (shmb_spec_read(&spec, data, size, &e)) check(e.status && e.message[0] && !spec.features);
    else check(!read || line.kind != LINE_OTHER);
    shmb_spec_free(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static shmb_codec *codecs[SERDES][3];
    for (int i = 0; i < SERDES * 3 && !codecs[SERDES - 1][2]; i++)
        check((codecs[i / 3][i % 3] = shmb_codec_new(serdes[i / 3])));
    if (size < 2) return 0;
    int which = data[0] % SERDES;
    shmb_side side = data[0] & 0x40 ? SHMB_ADVICE : SHMB_REQUEST;
    shmb_dtype want = side == SHMB_ADVICE ? (shmb_dtype)(data[1] % (SHMB_BFLOAT16 + 1)) : SHMB_ANY;
    bool misaligned = data[0] & 0x80;
    data = exact_copy(data + 2, size -= 2, misaligned);
    if (which == BITSTREAM) read_lines(data, size);
    shmb_codec *decoder = codecs[which][0];
    if (shmb_codec_decode(decoder, side, data, size, &want)) {
        check(shmb_codec_error(decoder)[0]);
        return 0;
    }
    int64_t count;
    const shmb_tensor *fields = shmb_codec_fields(decoder, &count);
    check_fields(fields, count, size);
    check_round_trip(which, side, fields, count, want, codecs[which][1], codecs[which][2]);
    return 0;
}
