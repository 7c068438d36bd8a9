/* The JSON lines of LLVM's channel: told apart by their key, in any order of keys, with whatever
 * other keys later versions add. */
#include "bridge.h"
#include "text/spec.h"

static struct error e;
static struct line line;

static shmb_status take(const char *text) { return shmb_line_read(&line, text, strlen(text), &e); }

static void lines_are_told_apart(void) {
    char name[16];
    CHECK(take("{\"f\\u0065atures\":[],\"advice\":{}}\n") == SHMB_OK && line.kind == LINE_HEADER);
    CHECK(take("{\"context\":\"\"}\n") == SHMB_OK && line.kind == LINE_CONTEXT &&
          line.context.size == 0);
    CHECK(take(" { \"later\" : [{}, 1e5, true, false, null] , \"context\" : \"f\\u00e9\\n\" } ") ==
              SHMB_OK &&
          line.kind == LINE_CONTEXT && line.context.size == 4);
    CHECK(shmb_json_name(&line.context, name) && strcmp(name, "f\xc3\xa9\n") == 0);
    CHECK(take("{\"observation\":0}") == SHMB_OK && line.kind == LINE_OBSERVATION);
    CHECK(take("{\"observation\":9223372036854775807}") == SHMB_OK);
    CHECK(take("{}") == SHMB_OK && line.kind == LINE_OTHER);
}

static void other_lines_are_corrupt(void) {
    for (const char *const *bad = TEXTS(
             "", "\n", "null", "[]", "x", "{\"observation\":}", "{\"observation\":1",
             "{\"observation\":1}}", "{\"observation\":-}", "{\"observation\":1.0}",
             "{\"observation\":9223372036854775808}", "{\"observation\":\"1\"}", "{\"context\":1}",
             "{\"context\":\"", "{\"context\":null}", "{\"observation\":1}\n{\"observation\":2}");
         *bad; bad++) {
        if (take(*bad) == SHMB_CORRUPT && e.message[0]) continue;
        fprintf(stderr, "%s is no error\n", *bad);
        exit(1);
    }
}

static void a_header_is_read_whole(void) {
    static const char text[] =
        "{\"features\":[{\"name\":\"li_size\",\"type\":\"int64_t\",\"port\":0,\"shape\":[1]},"
        "{\"name\":\"mask\",\"type\":\"float\",\"port\":7,\"shape\":[1,33]}],"
        "\"advice\":{\"name\":\"priority\",\"type\":\"float\",\"port\":0,\"shape\":[1]},\"later\":{"
        "\"x\":[]}}\n";
    struct spec s;
    CHECK(shmb_spec_read(&s, text, sizeof text - 1, &e) == SHMB_OK);
    CHECK(s.count == 2 && s.bytes == 8 + 33 * 4 && s.has_advice);
    CHECK(strcmp(s.features[0].name, "li_size") == 0 && s.features[0].dtype == SHMB_INT64 &&
          s.features[0].rank == 1 && s.features[0].size == 1);
    CHECK(strcmp(s.features[1].name, "mask") == 0 && s.features[1].rank == 2 &&
          s.features[1].bytes == 132);
    CHECK(strcmp(s.advice.name, "priority") == 0 && s.advice.dtype == SHMB_FLOAT32 &&
          s.advice.bytes == 4);
    shmb_spec_free(&s);
    CHECK(shmb_spec_read(&s, "{\"features\":[]}", 15, &e) == SHMB_OK && s.count == 0 &&
          s.bytes == 0 && !s.has_advice);
    shmb_spec_free(&s);
}

/* Told at once, and with memory in proportion to the text. */
static void a_long_line_is_no_bomb(void) {
    size_t size = 20 << 20;
    char *text = malloc(size);
    struct spec s;
    CHECK(text);
    memset(text, '[', size);
    memcpy(text, "{\"features\":", 12);
    CHECK(shmb_spec_read(&s, text, size, &e) == SHMB_CORRUPT &&
          shmb_line_read(&line, text, size, &e) == SHMB_CORRUPT);
    CHECK(strstr(e.message, "64"));
    size_t at = 13;
    for (; at + 80 < size;
         at += (size_t)snprintf(text + at, 80,
                                "{\"name\":\"f%zu\",\"type\":\"int8_t\",\"shape\":[]},", at))
        continue;
    size = at +
           (size_t)snprintf(text + at, 80, "{\"name\":\"f13\",\"type\":\"int8_t\",\"shape\":[]}]}");
    CHECK(shmb_spec_read(&s, text, size, &e) == SHMB_CORRUPT &&
          strstr(e.message, "the same name: f13"));
    free(text);
}

int main(void) {
    lines_are_told_apart();
    other_lines_are_corrupt();
    a_header_is_read_whole();
    a_long_line_is_no_bomb();
}
