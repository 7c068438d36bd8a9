/* The native frame's bytes are what flatbuffers.c draws; a frame that is cut, stretched or lies
 * about its sizes is corrupt. */
#include "serdes_codec.h"

static shmb_codec *c, *d;
static uint8_t frame[4096];
static size_t frame_size;

static void encode(shmb_side side, shmb_dtype want) {
    const void *bytes;
    CHECK_CODEC(c, shmb_codec_encode(c, side, want, &bytes, &frame_size), SHMB_OK);
    CHECK(frame_size <= sizeof frame);
    memcpy(frame, bytes, frame_size);
}

static void expect(size_t at, const void *bytes, size_t size) {
    CHECK(at + size <= frame_size && memcmp(frame + at, bytes, size) == 0);
}

static void a_frame_is_as_drawn(void) {
    static const uint8_t header[64] = {
        28, 0, 0, 0, 'S',        'H',         'M', 'B', 6,  0, 8, 0, 4,   0, 12, 0,
        12, 0, 4, 0, 8,          0,           9,   0,   10, 0, 0, 0, 20,  0, 0,  0,
        4,  0, 0, 0, 1,          0,           0,   0,   4,  0, 0, 0, 30,  0, 0,  0,
        8,  0, 0, 0, SHMB_INT64, SHMB_TENSOR, 1,   0,   1,  0, 0, 0, 'x', 0, 0,  0};
    codec_put(c, "x", SHMB_INT64, 1, (int64_t[]){2}, (int64_t[]){3, -1});
    encode(SHMB_REQUEST, SHMB_FLOAT32);
    CHECK(frame_size == 128 + 16);
    expect(0, (uint32_t[]){SHMB_FLOAT32, 64}, 8);
    expect(8, header, sizeof header);
    expect(72, (int64_t[]){2}, 8);
    for (size_t i = 80; i < 128; i++) CHECK(frame[i] == 0);
    expect(128, (int64_t[]){3, -1}, 16);
    shmb_dtype want = SHMB_ANY;
    CHECK_CODEC(d, shmb_codec_decode(d, SHMB_REQUEST, frame, frame_size, &want), SHMB_OK);
    CHECK(want == SHMB_FLOAT32);
    encode(SHMB_ADVICE, SHMB_FLOAT32);
    expect(0, (uint32_t[]){0}, 4);
    shmb_codec_clear(c);
}

static void fill_every_kind(void) {
    int64_t *offsets;
    codec_put(c, "t", SHMB_INT16, 2, (int64_t[]){1, 3}, (int16_t[]){1, 2, 3});
    codec_put_texts(c, "s", -1, (const char *[]){"text"});
    codec_put_texts(c, "l", 2, (const char *[]){"a", "bc"});
    void *rows = shmb_codec_add(c, "r", SHMB_INT8, SHMB_RAGGED, 2, (int64_t[]){2, 3, 2}, &offsets);
    memcpy(offsets, (int64_t[]){0, 1, 3}, 24);
    memcpy(rows, "123456", 6);
}

static void a_cut_or_stretched_frame_is_corrupt(void) {
    fill_every_kind();
    encode(SHMB_REQUEST, SHMB_ANY);
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, frame, frame_size, SHMB_ANY), SHMB_OK);
    for (size_t size = 0; size < frame_size; size++)
        CHECK(codec_decode(d, SHMB_REQUEST, frame, size, SHMB_ANY) == SHMB_CORRUPT);
    CHECK(codec_decode(d, SHMB_REQUEST, frame, frame_size + 1, SHMB_ANY) == SHMB_CORRUPT);
}

static void lie(size_t at, const void *bytes, size_t size) {
    uint8_t was[8];
    memcpy(was, frame + at, size);
    memcpy(frame + at, bytes, size);
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, frame, frame_size, SHMB_ANY), SHMB_CORRUPT);
    memcpy(frame + at, was, size);
}

static void lies_about_sizes_and_offsets_are_corrupt(void) {
    uint32_t header;
    memcpy(&header, frame + 4, 4);
    /* dims: 2 + 1 + 2 + 3 */
    size_t dims = 8 + (header + 7) / 8 * 8, body = (dims + 8 * 8 + 63) / 64 * 64;
    static const int64_t sizes[] = {-1,  INT64_MIN, INT64_MAX, INT64_MAX / 8, (int64_t)1 << 40,
                                    1000};
    for (size_t i = 0; i < 8; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) lie(dims + 8 * i, &sizes[k], 8);
    for (size_t i = 0; i < 3; i++) { /* the offsets of "l", third in the body */
        lie(body + 128 + 8 * i, &(int64_t){-1}, 8);
        lie(body + 128 + 8 * i, &(int64_t){4}, 8);
    }
    lie(0, &(uint32_t){SHMB_BFLOAT16 + 1}, 4);
    lie(4, &(uint32_t){header - 8}, 4);
    lie(4, &(uint32_t){header + 8}, 4);
    lie(4, &(uint32_t){0}, 4);
    lie(4, &(uint32_t){UINT32_MAX}, 4);
    lie(8, &(uint32_t){UINT32_MAX}, 4);
}

static void frames_need_no_alignment(void) {
    uint8_t *copy = malloc(frame_size + 1);
    CHECK(copy);
    memcpy(copy + 1, frame, frame_size);
    CHECK_CODEC(d, shmb_codec_decode(d, SHMB_REQUEST, copy + 1, frame_size, NULL), SHMB_OK);
    CHECK(memcmp(codec_field(d, 3)->data, "123456", 6) == 0);
    free(copy);
}

static void advice_of_another_dtype_than_wanted_is_a_mismatch(void) {
    shmb_codec_clear(c);
    codec_put(c, "a", SHMB_INT64, 0, NULL, &(int64_t){5});
    encode(SHMB_ADVICE, SHMB_ANY);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, frame, frame_size, SHMB_ANY), SHMB_OK);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, frame, frame_size, SHMB_INT64), SHMB_OK);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, frame, frame_size, SHMB_FLOAT32), SHMB_MISMATCH);
    shmb_codec_clear(c);
    encode(SHMB_ADVICE, SHMB_ANY);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, frame, frame_size, SHMB_ANY), SHMB_OK);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, frame, frame_size, SHMB_INT64), SHMB_MISMATCH);
}

int main(void) {
    c = codec_new("flatbuffers");
    d = codec_new("flatbuffers");
    a_frame_is_as_drawn();
    a_cut_or_stretched_frame_is_corrupt();
    lies_about_sizes_and_offsets_are_corrupt();
    frames_need_no_alignment();
    advice_of_another_dtype_than_wanted_is_a_mismatch();
    shmb_codec_free(c);
    shmb_codec_free(d);
}
