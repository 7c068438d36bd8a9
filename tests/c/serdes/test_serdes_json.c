/* JSON is written as Python's json reads it; what is read gets the dtype that its numbers have, or
 * exactly the one that is wanted; what has none is refused by its key's name. */
#include "serdes_codec.h"

static shmb_codec *c, *d;

static void expect_text(shmb_side side, const char *text) {
    expect_bytes(c, side, text, strlen(text));
    shmb_codec_clear(c);
}

static void messages_are_written_as_published(void) {
    codec_put(c, "x", SHMB_INT64, 0, NULL, &(int64_t){1234567890});
    expect_text(SHMB_REQUEST, "{\"x\": 1234567890}");
    expect_text(SHMB_REQUEST, "{}");
    codec_put(c, "x", SHMB_INT32, 1, (int64_t[]){3}, (int32_t[]){12, 23, 34});
    expect_text(SHMB_ADVICE, "{\"out\": [12, 23, 34]}");
    expect_text(SHMB_ADVICE, "{\"out\": {}}");
    codec_put(c, "a", SHMB_BOOL, 0, NULL, "\1");
    codec_put(c, "b", SHMB_UINT64, 2, (int64_t[]){2, 1}, (uint64_t[]){0, UINT64_MAX});
    expect_text(SHMB_ADVICE, "{\"out\": {\"a\": true, \"b\": [[0], [18446744073709551615]]}}");
    codec_put(c, "a", SHMB_INT64, 2, (int64_t[]){1, 2}, (int64_t[]){INT64_MIN, INT64_MAX});
    codec_put(c, "e", SHMB_INT8, 2, (int64_t[]){2, 0}, NULL);
    expect_text(SHMB_REQUEST,
                "{\"a\": [[-9223372036854775808, 9223372036854775807]], \"e\": [[], []]}");
}

static void floats_are_as_short_as_their_dtype_allows(void) {
    codec_put(c, "x", SHMB_FLOAT32, 1, (int64_t[]){8},
              (float[]){0.1f, 1, -0.0f, 3.14f, 16777216, 3.4028235e38f, 1e-45f, 1e20f});
    expect_text(SHMB_REQUEST,
                "{\"x\": [0.1, 1.0, -0.0, 3.14, 16777216.0, 3.4028235e+38, 1e-45, 1e+20]}");
    codec_put(c, "x", SHMB_FLOAT64, 1, (int64_t[]){7},
              (double[]){0.1, 0.12345678912345678, 5e-324, 1.7976931348623157e308, NAN, HUGE_VAL,
                         -HUGE_VAL});
    expect_text(SHMB_REQUEST, "{\"x\": [0.1, 0.12345678912345678, 5e-324, 1.7976931348623157e+308, "
                              "NaN, Infinity, -Infinity]}");
    codec_put(c, "x", SHMB_FLOAT16, 1, (int64_t[]){5},
              (uint16_t[]){0x3c00, 0x2e66, 0x0001, 0xfbff, 0xfc00});
    expect_text(SHMB_REQUEST, "{\"x\": [1.0, 0.099975586, 5.9604645e-08, -65504.0, -Infinity]}");
    codec_put(c, "x", SHMB_BFLOAT16, 1, (int64_t[]){3}, (uint16_t[]){0x3f80, 0x3dcd, 0x7fc0});
    expect_text(SHMB_REQUEST, "{\"x\": [1.0, 0.100097656, NaN]}");
}

static void strings_are_escaped(void) {
    codec_put_texts(
        c, "s\"\n", -1,
        (const char *[]){"\"\\/\b\f\n\r\t\x01\x7f\xc3\xa9\xf0\x9f\x98\x80\x80\xff\xed\xa0\x80"});
    expect_text(
        SHMB_REQUEST,
        "{\"s\\\"\\n\": "
        "\"\\\"\\\\/"
        "\\b\\f\\n\\r\\t\\u0001\x7f\xc3\xa9\xf0\x9f\x98\x80\\udc80\\udcff\\udced\\udca0\\udc80\"}");
    codec_put_texts(c, "l", 3, (const char *[]){"a", "", "bc"});
    expect_text(SHMB_REQUEST, "{\"l\": [\"a\", \"\", \"bc\"]}");
    static const char text[] =
        "{\"s\": \"\\u20AC\\u00e9\\ud83d\\ude00\\uDC80\\/\\u0000\", \"l\": [\"a\", \"\"]}";
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, text, sizeof text - 1, SHMB_ANY), SHMB_OK);
    const shmb_tensor *t = codec_field(d, 0);
    CHECK(t->kind == SHMB_STRING && t->size == 12 &&
          memcmp(t->data, "\xe2\x82\xac\xc3\xa9\xf0\x9f\x98\x80\x80/\0", 12) == 0);
    t = codec_field(d, 1);
    CHECK(t->kind == SHMB_STRINGS && t->dims[0] == 2 && t->dims[1] == 1 && t->offsets[1] == 1 &&
          t->offsets[2] == 1);
}

/* Decodes {"out": value} and checks that it is this tensor. */
static void expect_tensor(const char *value, shmb_dtype want, shmb_dtype dtype, int32_t rank,
                          const int64_t *dims, const void *data) {
    char text[512];
    CHECK_CODEC(d,
                codec_decode(d, SHMB_ADVICE, text,
                             (size_t)snprintf(text, sizeof text, " {\"out\" :%s}\n", value), want),
                SHMB_OK);
    const shmb_tensor *t = codec_field(d, 0);
    CHECK(strcmp(t->name, "advice") == 0 && t->kind == SHMB_TENSOR && t->dtype == dtype &&
          t->rank == rank);
    CHECK(!rank || memcmp(t->dims, dims, (size_t)rank * sizeof *dims) == 0);
    CHECK(!t->size || memcmp(t->data, data, (size_t)t->size * shmb_dtype_size(dtype)) == 0);
}

static void numbers_get_the_dtype_that_they_have(void) {
    expect_tensor("12", SHMB_ANY, SHMB_INT64, 0, NULL, &(int64_t){12});
    expect_tensor("-9223372036854775808", SHMB_ANY, SHMB_INT64, 0, NULL, &(int64_t){INT64_MIN});
    expect_tensor("[1, 18446744073709551615]", SHMB_ANY, SHMB_UINT64, 1, (int64_t[]){2},
                  (uint64_t[]){1, UINT64_MAX});
    expect_tensor("1e0", SHMB_ANY, SHMB_FLOAT64, 0, NULL, &(double){1});
    expect_tensor("[[1.5, Infinity], [-Infinity, -0.0]]", SHMB_ANY, SHMB_FLOAT64, 2,
                  (int64_t[]){2, 2}, (double[]){1.5, HUGE_VAL, -HUGE_VAL, -0.0});
    expect_tensor("[true, false]", SHMB_ANY, SHMB_BOOL, 1, (int64_t[]){2}, "\1\0");
    expect_tensor("[]", SHMB_ANY, SHMB_FLOAT64, 1, (int64_t[]){0}, NULL);
    expect_tensor("[[[], []]]", SHMB_ANY, SHMB_FLOAT64, 3, (int64_t[]){1, 2, 0}, NULL);
    expect_tensor("[[[[[[[[7]]]]]]]]", SHMB_ANY, SHMB_INT64, 8, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1},
                  &(int64_t){7});
}

static void wanted_dtypes_are_met(void) {
    expect_tensor("[1, 2.5]", SHMB_FLOAT32, SHMB_FLOAT32, 1, (int64_t[]){2}, (float[]){1, 2.5f});
    expect_tensor("[1, 2.0]", SHMB_INT8, SHMB_INT8, 1, (int64_t[]){2}, "\1\2");
    /* as LLVM writes 0.0 */
    expect_tensor("[0, 2.5, -1]", SHMB_ANY, SHMB_FLOAT64, 1, (int64_t[]){3},
                  (double[]){0, 2.5, -1});
    expect_tensor("[0.1, 3.4028235e+38, 1e-45, 16777216]", SHMB_FLOAT32, SHMB_FLOAT32, 1,
                  (int64_t[]){4}, (float[]){0.1f, 3.4028235e38f, 1e-45f, 16777216});
    /* %.9g of it */
    expect_tensor("0.100000001", SHMB_FLOAT32, SHMB_FLOAT32, 0, NULL, &(float){0.1f});
    expect_tensor("0.10000000149011612", SHMB_FLOAT32, SHMB_FLOAT32, 0, NULL, &(float){0.1f});
    /* of a double */
    expect_tensor("4.140000104904175", SHMB_FLOAT32, SHMB_FLOAT32, 0, NULL,
                  &(float){(float)4.140000104904175});
    expect_tensor("0.1234567890123", SHMB_FLOAT32, SHMB_FLOAT32, 0, NULL,
                  &(float){0.1234567890123f});
    expect_tensor("0.099975586", SHMB_FLOAT16, SHMB_FLOAT16, 0, NULL, &(uint16_t){0x2e66});
    expect_tensor("9223372036854775808", SHMB_FLOAT64, SHMB_FLOAT64, 0, NULL, &(double){0x1p63});
    expect_tensor("true", SHMB_INT32, SHMB_INT32, 0, NULL, &(int32_t){1});
    expect_tensor("[0, 1]", SHMB_BOOL, SHMB_BOOL, 1, (int64_t[]){2}, "\0\1");
    expect_tensor("[]", SHMB_INT16, SHMB_INT16, 1, (int64_t[]){0}, NULL);
}

static void lists_of_unequal_length_are_ragged(void) {
    static const char text[] = "{\"r\": [[1], [], [2, 3]], \"v\": [[[1.0, 2.0]], [[3.0, 4.0], "
                               "[5.0, 6.0]]], \"n\": [[], [[]]]}";
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, text, sizeof text - 1, SHMB_ANY), SHMB_OK);
    const shmb_tensor *t = codec_field(d, 0);
    CHECK(t->kind == SHMB_RAGGED && t->dtype == SHMB_INT64 && t->rank == 1 && t->dims[0] == 3 &&
          t->dims[1] == 3);
    CHECK(memcmp(t->offsets, (int64_t[]){0, 1, 1, 3}, 32) == 0 &&
          memcmp(t->data, (int64_t[]){1, 2, 3}, 24) == 0);
    t = codec_field(d, 1);
    CHECK(t->kind == SHMB_RAGGED && t->dtype == SHMB_FLOAT64 && t->rank == 2 && t->dims[0] == 2 &&
          t->dims[1] == 3 && t->dims[2] == 2);
    CHECK(memcmp(t->offsets, (int64_t[]){0, 1, 3}, 24) == 0 &&
          memcmp(t->data, (double[]){1, 2, 3, 4, 5, 6}, 48) == 0);
    t = codec_field(d, 2);
    CHECK(t->kind == SHMB_RAGGED && t->rank == 2 && t->dims[0] == 2 && t->dims[1] == 1 &&
          t->dims[2] == 0 && t->size == 0);
}

static void values_that_no_field_has_are_refused_by_name(void) {
    static const struct {
        const char *value;
        shmb_dtype want;
        shmb_status status;
    } bad[] = {
        {"[9007199254740993, 2.5]", 0, SHMB_INEXACT},
        {"[18446744073709551615, 2.5]", 0, SHMB_INEXACT},
        {"[1, true]", 0, SHMB_MISMATCH},
        {"[1, true]", SHMB_INT64, SHMB_MISMATCH},
        {"[\"a\", 1]", 0, SHMB_MISMATCH},
        {"[[1], 2]", 0, SHMB_MISMATCH},
        {"[1, [2]]", 0, SHMB_MISMATCH},
        {"[[], 1]", 0, SHMB_MISMATCH},
        {"[1, []]", 0, SHMB_MISMATCH},
        {"null", 0, SHMB_MISMATCH},
        {"[null]", 0, SHMB_MISMATCH},
        {"[{}]", 0, SHMB_MISMATCH},
        {"[[[1], [2, 3]]]", 0, SHMB_MISMATCH},
        {"[[[1]], [[]]]", 0, SHMB_MISMATCH},
        {"[[\"a\"]]", 0, SHMB_UNSUPPORTED},
        {"[[[[[[[[[1]]]]]]]]]", 0, SHMB_UNSUPPORTED},
        {"[[[[[[[[[[]]]]]]]]]]", 0, SHMB_UNSUPPORTED},
        {"\"a\"", SHMB_INT32, SHMB_MISMATCH},
        {"18446744073709551616", 0, SHMB_INEXACT},
        {"-9223372036854775809", 0, SHMB_INEXACT},
        {"[-1, 9223372036854775808]", 0, SHMB_INEXACT},
        {"2.5", SHMB_INT64, SHMB_INEXACT},
        {"256", SHMB_UINT8, SHMB_INEXACT},
        {"-1", SHMB_UINT64, SHMB_INEXACT},
        {"16777217", SHMB_FLOAT32, SHMB_INEXACT},
        {"1e39", SHMB_FLOAT32, SHMB_INEXACT},
        {"0.1", SHMB_FLOAT16, SHMB_INEXACT},
        {"9223372036854775809", SHMB_FLOAT64, SHMB_INEXACT},
        {"9223372036854775808", SHMB_INT64, SHMB_INEXACT},
        {"2", SHMB_BOOL, SHMB_INEXACT},
        {"NaN", SHMB_INT64, SHMB_INEXACT},
        {"18446744073709551615", SHMB_FLOAT64, SHMB_INEXACT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        size_t size = (size_t)snprintf(text, sizeof text, "{\"out\": %s}", bad[i].value);
        shmb_status status = codec_decode(d, SHMB_ADVICE, text, size, bad[i].want);
        if (status != bad[i].status)
            fprintf(stderr, "%s wanted as %s gave %d\n", bad[i].value, shmb_dtype_name(bad[i].want),
                    status);
        CHECK(status == bad[i].status && strstr(shmb_codec_error(d), "\"advice\""));
        if (bad[i].want) continue;
        size = (size_t)snprintf(text, sizeof text, "{\"x\": 1, \"the key\": %s}", bad[i].value);
        CHECK(codec_decode(d, SHMB_REQUEST, text, size, SHMB_ANY) == bad[i].status &&
              strstr(shmb_codec_error(d), "\"the key\""));
    }
}

static void malformed_text_is_corrupt(void) {
    for (const char *const *bad = TEXTS(
             "", " ", "{", "}", "[]", "1", "{}x", "{}{}", "{,}", "{\"a\"}", "{\"a\":}",
             "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "{'a':1}", "{\"a\":1 \"b\":2}", "{\"a\":[1,]}",
             "{\"a\":[,1]}", "{\"a\":[1 2]}", "{\"a\":[1}", "{\"a\":[1]]}", "{\"a\":01}",
             "{\"a\":-}", "{\"a\":+1}", "{\"a\":.5}", "{\"a\":1.}", "{\"a\":1e}", "{\"a\":1e+}",
             "{\"a\":0x1}", "{\"a\":1e999}", "{\"a\":nan}", "{\"a\":inf}", "{\"a\":-NaN}",
             "{\"a\":Infinit}", "{\"a\":tru}", "{\"a\":truex}", "{\"a\":\"}", "{\"a\":\"\n\"}",
             "{\"a\":\"\\x\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"\\u12g4\"}", "{\"a\":\"\\ud800\"}",
             "{\"a\":\"\\udc00\"}", "{\"a\":\"\\ud800\\u0041\"}", "{\"a\":\"\\ude00\\ud83d\"}",
             "{\"\":1}", "{\"\\u0000\":1}", "{\"\\udc80\":1}", "{\"\xff\":1}", "{\"a\":1,\"a\":2}",
             "{\"a\":1,\"b\":1,\"\\u0061\":2}", "\xef\xbb\xbf{}");
         *bad; bad++) {
        shmb_status status = codec_decode(d, SHMB_REQUEST, *bad, strlen(*bad), SHMB_ANY);
        if (status != SHMB_CORRUPT) fprintf(stderr, "%s gave %d\n", *bad, status);
        CHECK(status == SHMB_CORRUPT);
    }
    for (const char *const *advice =
             TEXTS("", "{}", "{\"in\": 1}", "{\"out\": 1, \"out\": 2}", "{\"out\": 1, \"x\": 2}",
                   "{\"out\": {\"a\": 1, \"a\": 2}}", "12", "[12]", "{\"out\": 1");
         *advice; advice++)
        CHECK(codec_decode(d, SHMB_ADVICE, *advice, strlen(*advice), SHMB_ANY) == SHMB_CORRUPT);
    CHECK(codec_decode(d, SHMB_ADVICE, "{\"out\": {}}", 11, SHMB_INT64) == SHMB_MISMATCH);
    CHECK(codec_decode(d, SHMB_ADVICE, "{\"out\": {\"a\": 1, \"b\": 2}}", 26, SHMB_INT64) ==
          SHMB_MISMATCH);
}

/* A hundred megabytes of brackets, or claims that cannot be: an error at once. */
static void bombs_are_refused(void) {
    size_t size = 100 << 20;
    char *text = malloc(size);
    CHECK(text);
    memset(text, '[', size);
    memcpy(text, "{\"a\":", 5);
    CHECK_CODEC(d, shmb_codec_decode(d, SHMB_REQUEST, text, size, NULL), SHMB_UNSUPPORTED);
    memset(text, '{', size);
    CHECK_CODEC(d, shmb_codec_decode(d, SHMB_REQUEST, text, size, NULL), SHMB_CORRUPT);
    free(text);
    const void *bytes;
    codec_put(c, "vast", SHMB_INT8, 2, (int64_t[]){1 << 21, 0}, NULL);
    CHECK_CODEC(c, shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size), SHMB_UNSUPPORTED);
    CHECK(strstr(shmb_codec_error(c), "serdes=flatbuffers"));
    shmb_codec_clear(c);
}

static void names_that_are_no_text_are_refused(void) {
    const void *bytes;
    size_t size;
    codec_put(c, "\xff", SHMB_INT8, 0, NULL, "1");
    CHECK_CODEC(c, shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size), SHMB_INVALID);
}

int main(void) {
    c = codec_new("json");
    d = codec_new("json");
    messages_are_written_as_published();
    floats_are_as_short_as_their_dtype_allows();
    strings_are_escaped();
    numbers_get_the_dtype_that_they_have();
    wanted_dtypes_are_met();
    lists_of_unequal_length_are_ragged();
    values_that_no_field_has_are_refused_by_name();
    malformed_text_is_corrupt();
    bombs_are_refused();
    names_that_are_no_text_are_refused();
    shmb_codec_free(c);
    shmb_codec_free(d);
}
