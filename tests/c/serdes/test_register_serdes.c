/* A SerDes that a program registers is found by its name; what it may be, and what it says when it
 * fails. */
#include "bridge.h"
#include "serdes/codec.h"
#include "serdes/serdes.h"

static shmb_status encode(void *context, shmb_side side, const shmb_tensor *f, int64_t n,
                          shmb_dtype want, shmb_sink *bytes) {
    CHECK(strcmp(context, "c") == 0);
    if (n == 0) return SHMB_INVALID;
    if (n == 2) return shmb_sink_fail(bytes, SHMB_UNSUPPORTED, "two are too many");
    CHECK(!shmb_sink_field(bytes, "x", SHMB_INT8, SHMB_TENSOR, 0, NULL, NULL) || 0);
    return SHMB_OK;
}

static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message) {
    shmb_sink_want(message, SHMB_FLOAT32);
    /* a rank that cannot be fails by itself */
    shmb_sink_field(message, "size", SHMB_INT64, SHMB_TENSOR, size == 3 ? 99 : 0, NULL, NULL);
    return SHMB_OK;
}

static const shmb_serdes mine = {
    .size = sizeof mine, .name = "mine", .context = "c", .encode = encode, .decode = decode};

int main(void) {
    CHECK(!shmb_serdes_find("mine") && !shmb_codec_new("mine"));
    CHECK(shmb_register_serdes(&mine) == SHMB_OK && shmb_register_serdes(&mine) == SHMB_OK);
    shmb_serdes other = mine;
    CHECK(shmb_register_serdes(&other) == SHMB_IN_USE);
    other.name = "json";
    CHECK(shmb_register_serdes(&other) == SHMB_IN_USE);
    other.name = "";
    CHECK(shmb_register_serdes(&other) == SHMB_INVALID &&
          shmb_register_serdes(NULL) == SHMB_INVALID);
    struct error e;
    CHECK(!shmb_serdes_choose("none", &e) &&
          strstr(e.message, "one of bitstream, json, flatbuffers, mine"));
    char names[12] = "", cut[12] = "…";
    for (int i = 0; i < 3; i++) shmb_list_name(names, sizeof names, i == 1 ? "too long" : "json");
    shmb_list_name(cut, sizeof cut, "b");
    CHECK(strcmp(names, "json, …") == 0 && strcmp(cut, "…") == 0);

    const void *bytes;
    size_t size;
    shmb_dtype want = SHMB_ANY;
    shmb_codec *c = shmb_codec_new("mine");
    CHECK(shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size) == SHMB_INVALID &&
          strstr(shmb_codec_error(c), "without saying why"));
    shmb_codec_clear(c);
    shmb_codec_add(c, "a", SHMB_INT8, SHMB_TENSOR, 0, NULL, NULL);
    CHECK(shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size) == SHMB_INVALID &&
          strstr(shmb_codec_error(c), "takes bytes"));
    shmb_codec_clear(c);
    shmb_codec_add(c, "a", SHMB_INT8, SHMB_TENSOR, 0, NULL, NULL);
    shmb_codec_add(c, "b", SHMB_INT8, SHMB_TENSOR, 0, NULL, NULL);
    CHECK(shmb_codec_encode(c, SHMB_REQUEST, SHMB_ANY, &bytes, &size) == SHMB_UNSUPPORTED &&
          strstr(shmb_codec_error(c), "two are too many"));
    CHECK(shmb_codec_decode(c, SHMB_REQUEST, "xyz", 3, &want) == SHMB_INVALID &&
          strstr(shmb_codec_error(c), "rank"));
    CHECK(shmb_codec_decode(c, SHMB_REQUEST, "xy", 2, &want) == SHMB_OK && want == SHMB_FLOAT32);
    shmb_codec_free(c);
}
