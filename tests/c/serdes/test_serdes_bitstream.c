/* The bitstream's bytes are those of ML-Compiler-Bridge, both ways; what has no form there is
 * refused, and so is every other byte. */
#include "serdes_codec.h"
#include "text/spec.h"

#define REQUEST(features, values) "{\"features\":[" features "]}\n" values "\n"
#define X(type, shape) "{\"name\":\"x\",\"type\":\"" type "\",\"port\":6020,\"shape\":[" shape "]}"

static shmb_codec *c, *d;

static void requests_are_those_published(void) {
    static const char ints[] = REQUEST(X("int32_t", "3"), "\x0b\0\0\0\x16\0\0\0\x21\0\0\0");
    codec_put(c, "x", SHMB_INT32, 1, (int64_t[]){3}, (int32_t[]){11, 22, 33});
    expect_bytes(c, SHMB_REQUEST, ints, sizeof ints - 1);
    static const char scalar[] = REQUEST(X("int64_t", "1"), "\xd2\x02\x96\x49\0\0\0\0");
    shmb_codec_clear(c);
    codec_put(c, "x", SHMB_INT64, 0, NULL, &(int64_t){1234567890});
    expect_bytes(c, SHMB_REQUEST, scalar, sizeof scalar - 1);
    static const char several[] =
        REQUEST(X("uint8_t", "1") ",{\"name\":\"s\\\"\\n\",\"type\":\"uint8_t\",\"port\":6020,"
                                  "\"shape\":[2]},{\"name\":"
                                  "\"e\",\"type\":\"float\",\"port\":6020,"
                                  "\"shape\":[2,0]},{\"name\":\"d\",\"type\":\"double\",\"port\":"
                                  "6020,\"shape\":[1,1]}",
                "\x01"
                "ab"
                "\0\0\0\0\0\0\xf8\x3f");
    shmb_codec_clear(c);
    codec_put(c, "x", SHMB_BOOL, 0, NULL, &(uint8_t){1});
    codec_put_texts(c, "s\"\n", -1, (const char *[]){"ab"});
    codec_put(c, "e", SHMB_FLOAT32, 2, (int64_t[]){2, 0}, NULL);
    codec_put(c, "d", SHMB_FLOAT64, 2, (int64_t[]){1, 1}, &(double){1.5});
    expect_bytes(c, SHMB_REQUEST, several, sizeof several - 1);
    shmb_codec_clear(c);
    expect_bytes(c, SHMB_REQUEST, "{\"features\":[]}\n\n", 17);
}

static void a_request_is_read_whatever_its_keys_order(void) {
    static const char bytes[] =
        "{\"later\":[{},null],\"features\":[{\"shape\":[2,1],\"z\":\"\\\"}\",\"type\":\"int16_"
        "t\",\"name\":\"\\u00e9\",\"port\":0},"
        "{\"name\":\"none\",\"type\":\"double\",\"shape\":[0,2147483647]},"
        "{\"name\":\"u\",\"type\":\"uint64_t\",\"port\":-1,\"shape\":[]}]}"
        "\n\x01\0\x02\0\xff\xff\xff\xff\xff\xff\xff\xff\n";
    CHECK_CODEC(d, codec_decode(d, SHMB_REQUEST, bytes, sizeof bytes - 1, SHMB_ANY), SHMB_OK);
    const shmb_tensor *t = codec_field(d, 0);
    CHECK(strcmp(t->name, "\xc3\xa9") == 0 && t->dtype == SHMB_INT16 && t->rank == 2 &&
          t->dims[0] == 2 && t->dims[1] == 1);
    CHECK(((const int16_t *)t->data)[0] == 1 && ((const int16_t *)t->data)[1] == 2);
    CHECK(codec_field(d, 1)->size == 0 && codec_field(d, 1)->dims[1] == INT32_MAX);
    CHECK(codec_field(d, 2)->rank == 0 && *(const uint64_t *)codec_field(d, 2)->data == UINT64_MAX);
}

static void expect_advice(shmb_dtype want, const void *bytes, size_t size, int64_t count,
                          const void *values) {
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, bytes, size, want), SHMB_OK);
    const shmb_tensor *t = codec_field(d, 0);
    CHECK(strcmp(t->name, "advice") == 0 && t->dtype == want && t->kind == SHMB_TENSOR &&
          t->rank == (count != 1) && t->size == count);
    CHECK(!count || memcmp(t->data, values, (size_t)count * shmb_dtype_size(want)) == 0);
}

static void advice_is_raw_elements(void) {
    codec_put(c, "whatever", SHMB_FLOAT32, 1, (int64_t[]){4}, (float[]){1.11f, 2.22f, -3.33f, 0});
    float four[] = {1.11f, 2.22f, -3.33f, 0};
    expect_bytes(c, SHMB_ADVICE, four, sizeof four);
    expect_advice(SHMB_FLOAT32, four, sizeof four, 4, four);
    shmb_codec_clear(c);
    codec_put(c, "b", SHMB_BOOL, 1, (int64_t[]){2}, (uint8_t[]){1, 0});
    expect_bytes(c, SHMB_ADVICE, (int32_t[]){1, 0}, 8);
    shmb_codec *fresh = codec_new("bitstream");
    codec_put(fresh, "b", SHMB_BOOL, 1, (int64_t[]){0}, NULL);
    expect_bytes(fresh, SHMB_ADVICE, "", 0);
    shmb_codec_free(fresh);
    expect_advice(SHMB_BOOL, (int32_t[]){1, 0}, 8, 2, (uint8_t[]){1, 0});
    expect_advice(SHMB_BOOL, (int32_t[]){1}, 4, 1, (uint8_t[]){1});
    expect_advice(SHMB_BOOL, "\1", 1, 1, (uint8_t[]){1});
    expect_advice(SHMB_BOOL, "", 0, 0, NULL);
    expect_advice(SHMB_UINT8, "b", 1, 1, "b");
    expect_advice(SHMB_INT64, "", 0, 0, NULL);
    /* 4 bytes alone are an int or a float of theirs */
    expect_advice(SHMB_INT64, (int32_t[]){-7}, 4, 1, (int64_t[]){-7});
    expect_advice(SHMB_FLOAT64, (float[]){0.1f}, 4, 1, (double[]){(double)0.1f});
}

/* A runner of ours says what it wants; others read the same without looking. */
static void what_is_wanted_is_told(void) {
    static const struct {
        const char *header;
        bool typed;
        shmb_dtype want;
    } headers[] = {
        {"{\"features\":[]}", false, SHMB_ANY},
        {"{\"features\":[],\"want\":\"any\"}", true, SHMB_ANY},
        {"{\"want\":\"float16\",\"features\":[]}", true, SHMB_FLOAT16},
        {"{\"features\":[],\"want\":\"quiche\"}", false, SHMB_ANY},
        {"{\"features\":[],\"want\":{\"x\":[1]}}", false, SHMB_ANY},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct spec spec;
        struct error e = {0};
        CHECK(shmb_spec_read(&spec, headers[i].header, strlen(headers[i].header), &e) == SHMB_OK);
        CHECK(spec.has_want == headers[i].typed && spec.want == headers[i].want);
        shmb_spec_free(&spec);
    }
}

static void advice_that_cannot_be_is_refused(void) {
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "1234", 4, SHMB_ANY), SHMB_MISMATCH);
    CHECK(strstr(shmb_codec_error(d),
                 "send one: ask with shmb_evaluate_as, or evaluate(..., dtype=)"));
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "123456789012", 12, SHMB_INT64), SHMB_MISMATCH);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "123", 3, SHMB_BOOL), SHMB_MISMATCH);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "\2", 1, SHMB_BOOL), SHMB_INEXACT);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "\1\1\0\0", 4, SHMB_BOOL), SHMB_INEXACT);
    CHECK_CODEC(d, codec_decode(d, SHMB_ADVICE, "12", 2, SHMB_FLOAT16), SHMB_UNSUPPORTED);
}

static void expect_refused(shmb_side side, shmb_status expected) {
    const void *bytes;
    size_t size;
    CHECK_CODEC(c, shmb_codec_encode(c, side, SHMB_ANY, &bytes, &size), expected);
    CHECK(strstr(shmb_codec_error(c), "serdes=flatbuffers"));
    shmb_codec_clear(c);
}

static void what_has_no_form_is_refused(void) {
    int64_t *offsets;
    shmb_codec_clear(c);
    for (int side = SHMB_REQUEST; side <= SHMB_ADVICE; side++) {
        codec_put(c, "h", SHMB_FLOAT16, 0, NULL, "12");
        expect_refused((shmb_side)side, SHMB_UNSUPPORTED);
        codec_put(c, "h", SHMB_BFLOAT16, 0, NULL, "12");
        expect_refused((shmb_side)side, SHMB_UNSUPPORTED);
        codec_put_texts(c, "s", 1, (const char *[]){"text"});
        expect_refused((shmb_side)side, SHMB_UNSUPPORTED);
        shmb_codec_add(c, "r", SHMB_INT32, SHMB_RAGGED, 1, (int64_t[]){0, 0}, &offsets);
        offsets[0] = 0;
        expect_refused((shmb_side)side, SHMB_UNSUPPORTED);
    }
    expect_refused(SHMB_ADVICE, SHMB_MISMATCH);
    codec_put(c, "a", SHMB_INT32, 0, NULL, "1234");
    codec_put(c, "b", SHMB_INT32, 0, NULL, "1234");
    expect_refused(SHMB_ADVICE, SHMB_MISMATCH);
}

static void malformed_requests_are_corrupt(void) {
    for (const char *const *bad = TEXTS(
             "", "\n", "{}\n\n", "[]\n\n", "{\"features\":[]}", "{\"features\":[]}\n",
             "{\"features\":[]}\n\n\n", "{\"features\":[]}\nx", "{\"features\":{}}\n\n",
             "{\"features\":[1]}\n\n", "{\"features\":[]}{}\n\n", "{\"features\":[],}\n\n",
             "{\"features\":[],\"features\":[]}\n\n", REQUEST(X("int32_t", "1"), "123"),
             REQUEST(X("int32_t", "1"), "12345"), REQUEST(X("int32_t", "1"), "1234") "\n",
             REQUEST(X("half", "1"), "12"), REQUEST(X("bool", "1"), "1"),
             REQUEST(X("int8_t", "-1"), ""), REQUEST(X("int8_t", "1.0"), "1"),
             REQUEST(X("int8_t", "9223372036854775808"), "1"),
             REQUEST(X("int8_t", "1,1,1,1,1,1,1,1,1"), "1"), REQUEST(X("int8_t", "1,"), "1"),
             REQUEST(X("int64_t", "1152921504606846976"), "1"),
             REQUEST(X("int64_t", "2305843009213693952"), ""),
             REQUEST(X("int8_t", "4294967296,4294967296"), ""),
             REQUEST(X("int8_t",
                       "9223372036854775807") ",{\"name\":\"y\",\"type\":\"int8_t\",\"shape\":"
                                              "[9223372036854775807]},"
                                              "{\"name\":\"z\",\"type\":\"int8_t\",\"shape\":["
                                              "9223372036854775807]}",
                     ""),
             REQUEST(X("int8_t", "1") "," X("int8_t", "1"), "12"),
             REQUEST("{\"name\":\"x\",\"type\":\"int8_t\"}", "1"),
             REQUEST("{\"name\":\"x\",\"shape\":[1]}", "1"),
             REQUEST("{\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"x\",\"name\":\"x\",\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"\",\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"\\u0000\",\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"\\udc80\",\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"\xff\",\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":1,\"type\":\"int8_t\",\"shape\":[1]}", "1"),
             REQUEST("{\"name\":\"x\",\"type\":\"int8_t\",\"shape\":1}", "1"));
         *bad; bad++) {
        shmb_status status = codec_decode(d, SHMB_REQUEST, *bad, strlen(*bad), SHMB_ANY);
        if (status != SHMB_CORRUPT) fprintf(stderr, "%s gave %d\n", *bad, status);
        CHECK(status == SHMB_CORRUPT);
    }
    static const char whole[] = REQUEST(X("int32_t", "2"), "12345678");
    for (size_t size = 0; size < sizeof whole - 1; size++)
        CHECK(codec_decode(d, SHMB_REQUEST, whole, size, SHMB_ANY) == SHMB_CORRUPT);
}

int main(void) {
    c = codec_new("bitstream");
    d = codec_new("bitstream");
    requests_are_those_published();
    a_request_is_read_whatever_its_keys_order();
    shmb_codec_clear(c);
    advice_is_raw_elements();
    what_is_wanted_is_told();
    advice_that_cannot_be_is_refused();
    what_has_no_form_is_refused();
    malformed_requests_are_corrupt();
    shmb_codec_free(c);
    shmb_codec_free(d);
}
