/* Every dtype, rank and kind comes back from each SerDes that has a form for it as it was sent,
 * both ways. What a SerDes cannot tell apart is said where it is left out. */
#include "serdes_codec.h"

static shmb_codec *c, *d;
static bool json, bitstream;

/* Element i of a dtype: all values there are, as far as i goes, and all of them numbers. */
static void set_element(shmb_dtype dtype, int64_t i, void *out) {
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u ^ (uint64_t)i << 7;
    size_t size = shmb_dtype_size(dtype);
    if (dtype == SHMB_BOOL) x &= 1;
    if (dtype == SHMB_FLOAT16 && (x & 0x7c00) == 0x7c00) x = 0x7c00; /* JSON keeps no NaN's bits */
    if (dtype == SHMB_BFLOAT16 && (x & 0x7f80) == 0x7f80) x = 0xff80;
    if (dtype == SHMB_FLOAT32 && (x & 0x7f800000) == 0x7f800000) x = 0x7f800000;
    if (dtype == SHMB_FLOAT64 && (x >> 52 & 0x7ff) == 0x7ff) x = (uint64_t)0xfff << 52;
    memcpy(out, &x, size);
}

static void fill(shmb_dtype dtype, void *to, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        set_element(dtype, i, (char *)to + (size_t)i * shmb_dtype_size(dtype));
}

/* Encodes what c holds, its only field, and decodes it into d as its own dtype. */
static void expect_back(shmb_side side, shmb_dtype want, shmb_dtype wish) {
    const void *bytes;
    size_t size;
    CHECK_CODEC(c, shmb_codec_encode(c, side, want, &bytes, &size), SHMB_OK);
    CHECK_CODEC(d, codec_decode(d, side, bytes, size, side == SHMB_ADVICE ? wish : SHMB_ANY),
                SHMB_OK);
    const shmb_tensor *sent = codec_field(c, 0), *back = codec_field(d, 0);
    if (!json || side == SHMB_REQUEST)
        CHECK(side == SHMB_ADVICE && bitstream ? strcmp(back->name, "advice") == 0
                                               : strcmp(back->name, sent->name) == 0);
    shmb_tensor flat = *sent;
    if (bitstream && (side == SHMB_ADVICE || sent->rank == 0))
        flat.kind = SHMB_TENSOR, flat.rank = side == SHMB_REQUEST || flat.size != 1,
        flat.dims = &flat.size;
    if (bitstream && flat.kind == SHMB_STRING) flat.kind = SHMB_TENSOR;
    if (bitstream && side == SHMB_REQUEST && flat.dtype == SHMB_BOOL) flat.dtype = SHMB_UINT8;
    expect_equal(&flat, back);
}

static bool has_form(shmb_dtype dtype) {
    return !bitstream || (dtype != SHMB_FLOAT16 && dtype != SHMB_BFLOAT16);
}

/* JSON knows one type of integers and one of floats: an advice that is wanted as its dtype has it,
 * a request does not. */
static bool keeps_dtype(shmb_dtype dtype, shmb_side side) {
    return !json || side == SHMB_ADVICE || dtype == SHMB_INT64 || dtype == SHMB_FLOAT64 ||
           dtype == SHMB_BOOL;
}

static void every_dtype_of_every_rank(void) {
    for (int dtype = SHMB_BOOL; dtype <= SHMB_BFLOAT16; dtype++)
        for (int32_t rank = 0; rank <= SHMB_MAX_RANK; rank++)
            for (int side = SHMB_REQUEST; side <= SHMB_ADVICE; side++) {
                int64_t dims[SHMB_MAX_RANK], count = 1;
                for (int i = 0; i < rank; i++) count *= dims[i] = 2 + i % 2;
                if (!has_form((shmb_dtype)dtype) ||
                    !keeps_dtype((shmb_dtype)dtype, (shmb_side)side))
                    continue;
                shmb_codec_clear(c);
                fill((shmb_dtype)dtype,
                     shmb_codec_add(c, "x", (shmb_dtype)dtype, SHMB_TENSOR, rank, dims, NULL),
                     count);
                expect_back((shmb_side)side, (shmb_dtype)dtype, (shmb_dtype)dtype);
            }
}

static void all_halves_and_many_floats(void) {
    for (int dtype = SHMB_FLOAT16; dtype <= SHMB_BFLOAT16; dtype++) {
        if (!has_form((shmb_dtype)dtype)) continue;
        shmb_codec_clear(c);
        fill((shmb_dtype)dtype,
             shmb_codec_add(c, "x", (shmb_dtype)dtype, SHMB_TENSOR, 1, (int64_t[]){65536}, NULL),
             65536);
        expect_back(SHMB_ADVICE, (shmb_dtype)dtype, (shmb_dtype)dtype);
    }
}

static void empty_tensors(void) {
    static const struct {
        int32_t rank;
        int64_t dims[3];
    } shapes[] = {{1, {0}},    {2, {3, 0}},    {3, {3, 2, 0}},
                  {2, {0, 5}}, {3, {3, 0, 2}}, {3, {0, 0, INT32_MAX}}};
    for (int i = 0; i < (json ? 3 : 6); i++) { /* JSON cannot say the sizes behind a 0 */
        shmb_codec_clear(c);
        CHECK(shmb_codec_add(c, "x", SHMB_FLOAT64, SHMB_TENSOR, shapes[i].rank, shapes[i].dims,
                             NULL));
        expect_back(SHMB_REQUEST, SHMB_ANY, SHMB_ANY);
        expect_back(SHMB_ADVICE, SHMB_FLOAT64, SHMB_FLOAT64);
    }
}

static void strings(void) {
    static const char *const texts[] = {"", "a", "\xc3\xa9\"\\\n", "\x80\xff"};
    for (int i = 0; i < 4; i++) {
        shmb_codec_clear(c);
        codec_put_texts(c, "s", -1, &texts[i]);
        expect_back(SHMB_REQUEST, SHMB_ANY, SHMB_UINT8);
        expect_back(SHMB_ADVICE, SHMB_ANY, SHMB_UINT8);
    }
    /* JSON's [] is no list of strings */
    for (int count = json; !bitstream && count <= 4; count++) {
        shmb_codec_clear(c);
        codec_put_texts(c, "l", count, texts);
        expect_back(SHMB_REQUEST, SHMB_ANY, SHMB_ANY);
        expect_back(SHMB_ADVICE, SHMB_UINT8, SHMB_UINT8);
    }
}

/* Rows of 0, 2 and 1 values: unequal, as JSON needs to know a list of rows from a tensor. */
static void ragged_lists(void) {
    int64_t *offsets, dims[] = {3, 3, 2, 1, 2, 1, 2, 1, 2};
    for (int dtype = SHMB_BOOL; dtype <= SHMB_BFLOAT16 && !bitstream; dtype++)
        for (int32_t rank = 1; rank <= SHMB_MAX_RANK; rank++)
            for (int side = SHMB_REQUEST; side <= SHMB_ADVICE; side++) {
                if (!keeps_dtype((shmb_dtype)dtype, (shmb_side)side)) continue;
                int64_t count = 3;
                for (int i = 2; i <= rank; i++) count *= dims[i];
                shmb_codec_clear(c);
                fill((shmb_dtype)dtype,
                     shmb_codec_add(c, "r", (shmb_dtype)dtype, SHMB_RAGGED, rank, dims, &offsets),
                     count);
                memcpy(offsets, (int64_t[]){0, 0, 2, 3}, 32);
                expect_back((shmb_side)side, (shmb_dtype)dtype, (shmb_dtype)dtype);
            }
}

static void many_fields_keep_their_order(void) {
    enum { MANY = 1000 };
    const void *bytes;
    size_t size;
    char name[16];
    shmb_codec_clear(c);
    for (int64_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "f%d", (int)i * 7919 % MANY);
        codec_put(c, name, SHMB_INT64, 1, (int64_t[]){1}, &i);
    }
    CHECK_CODEC(c, shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size), SHMB_OK);
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, bytes, size, SHMB_ANY), SHMB_OK);
    for (int64_t i = 0; i < MANY; i++) {
        CHECK(strcmp(codec_field(d, i)->name, codec_field(c, i)->name) == 0);
        expect_equal(codec_field(c, i), codec_field(d, i));
    }
}

static void large_ones(void) {
    int64_t count = json ? 1 << 20 : 8 << 20;
    shmb_codec_clear(c);
    fill(SHMB_INT64, shmb_codec_add(c, "large", SHMB_INT64, SHMB_TENSOR, 1, &count, NULL), count);
    expect_back(SHMB_REQUEST, SHMB_ANY, SHMB_ANY);
}

int main(void) {
    static const char *const serdes[] = {"bitstream", "json", "flatbuffers"};
    for (int i = 0; i < 3; i++) {
        bitstream = i == 0;
        json = i == 1;
        c = codec_new(serdes[i]);
        d = codec_new(serdes[i]);
        every_dtype_of_every_rank();
        all_halves_and_many_floats();
        empty_tensors();
        strings();
        ragged_lists();
        many_fields_keep_their_order();
        large_ones();
        shmb_codec_free(c);
        shmb_codec_free(d);
    }
    return 0;
}
