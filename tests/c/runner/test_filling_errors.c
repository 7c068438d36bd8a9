/* What is filled wrongly, or does not fit, is an error of the next evaluate, which says so; until
 * then memory is private and holds what the caller writes; then the runner goes on. */
#include "bridge.h"

static shmb_runner *r;

static void expect(shmb_status status, const char *message) {
    CHECK_FAILS(r, shmb_evaluate(r), status, message);
    CHECK(shmb_advice_count(r) == 0 && asked(r, 1) == 2);
}

static void names(void) {
    for (int i = 0; i < 2; i++) shmb_set_i64(r, "x", i);
    expect(SHMB_INVALID, "same name");
    shmb_set_i64(r, "", 1);
    expect(SHMB_INVALID, "name");
    shmb_set_i64(r, NULL, 1);
    expect(SHMB_INVALID, "name");
    for (const char *const *bad =
             TEXTS("\xff", "a\x80", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80");
         *bad; bad++) {
        shmb_set_i64(r, *bad, 1);
        expect(SHMB_INVALID, "UTF-8");
    }
    shmb_set_i64(r, "\xe2\x82\xac and \xf0\x9f\x98\x80", 1); /* what is UTF-8 is fine */
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
}

/* bytes: how many of such a tensor its caller will write. */
static void tensor(shmb_dtype dtype, int32_t rank, const int64_t *dims, size_t bytes,
                   const char *message) {
    void *at = shmb_feature(r, "x", dtype, rank, dims);
    if (bytes) memset(at, 1, bytes);
    expect(SHMB_INVALID, message);
}

static void tensors(void) {
    const int64_t twos[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
    tensor(SHMB_FLOAT64, 9, twos, 512 * sizeof(double), "rank");
    tensor(SHMB_INT32, -1, twos, 0, "rank");
    tensor(SHMB_INT32, 1, NULL, 0, "NULL");
    tensor((shmb_dtype)14, 9, twos, 512, "rank");
    tensor((shmb_dtype)14, 1, twos, 2, "14 is not a dtype");
    tensor(SHMB_ANY, 1, twos, 2, "0 is not a dtype");
    tensor(SHMB_INT64, 2, (int64_t[]){INT64_MAX / 2, 3}, 0, "dims");
    tensor(SHMB_INT64, 1, (int64_t[]){-1}, 0, "dims");
    /* more than a library of arrays may count to */
    tensor(SHMB_FLOAT64, 3, (int64_t[]){1 << 20, 0, (1 << 17) + 1}, 0, "1 TiB");
    tensor(SHMB_INT8, 3, (int64_t[]){INT64_MAX, 0, INT64_MAX}, 0, "1 TiB");
    shmb_set(r, "NULL", SHMB_FLOAT32, 1, (int64_t[]){4}, NULL);
    expect(SHMB_INVALID, "\"NULL\": expected data, found NULL");
}

static void lists(void) {
    int64_t lengths[100];
    for (int i = 0; i < 100; i++) lengths[i] = 3;
    memset(shmb_feature_ragged(r, "x", SHMB_FLOAT32, 100, lengths, 0, NULL), 1,
           300 * sizeof(float));
    expect(SHMB_INVALID, "a rank of 1");
    shmb_feature_ragged(r, "x", SHMB_INT8, 1, lengths, 2, NULL);
    expect(SHMB_INVALID, "with its dims");
    shmb_feature_ragged(r, "x", SHMB_INT8, 2, (int64_t[]){INT64_MAX, 1}, 1, NULL);
    expect(SHMB_INVALID, "every length");
    shmb_feature_ragged(r, "x", SHMB_INT8, 2, (int64_t[]){1, -1}, 1, NULL);
    expect(SHMB_INVALID, "every length");
}

static void texts(void) {
    static const char no_text[] = "\"x\": expected a text, found NULL";
    const char *const half[] = {"a", NULL};
    for (int bytes = -1; bytes < 4; bytes += 4) {
        shmb_set_string(r, "x", NULL, bytes);
        expect(SHMB_INVALID, no_text);
    }
    shmb_set_strings(r, "x", 1, NULL, NULL);
    expect(SHMB_INVALID, no_text);
    shmb_set_strings(r, "x", 2, half, NULL);
    expect(SHMB_INVALID, no_text);
    shmb_set_strings(r, "x", 2, half, (int64_t[]){1, 1});
    expect(SHMB_INVALID, no_text);
    shmb_set_strings(r, "x", -1, NULL, NULL);
    expect(SHMB_INVALID, "rows >= 0");
}

/* The host never hears of it. */
static void wanted_dtypes(void) {
    static const int dtypes[] = {14, 99, 255, 256, -1};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        shmb_set_i64(r, "x", 4);
        CHECK_FAILS(r, shmb_evaluate_as(r, (shmb_dtype)dtypes[i]), SHMB_INVALID, "is not a dtype");
        CHECK(asked(r, 4) == 5);
    }
}

/* What just fits, fits. */
static void sizes(void) {
    char name[5000]; /* a header of more than a slot has room for */
    int64_t most = (int64_t)small_plan.request_bytes;
    memset(feature_u8(r, "x", most), 1, (size_t)most);
    expect(SHMB_MODEL, "unknown dtype"); /* it arrived: the model does not like uint8 */
    memset(feature_u8(r, "x", most + 1), 1, (size_t)most + 1);
    expect(SHMB_TOO_LARGE, "\"x\"");
    feature_u8(r, "x", most - 63);
    shmb_set_i64(r, "y", 1);
    expect(SHMB_TOO_LARGE, "\"y\"");
    memset(feature_u8(r, "echo", 4097), 1, 4097); /* the advice does not fit */
    expect(SHMB_TOO_LARGE, "advice_bytes");
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    shmb_set_i64(r, name, 1);
    expect(SHMB_TOO_LARGE, "header_bytes");
}

/* Fields that the host knows already grow beyond the slot, which lies before those of others. */
static void known_fields_grow(void) {
    int64_t most = (int64_t)small_plan.request_bytes, many = (1 << 20) + most;
    int64_t lengths[] = {1, 1};
    for (int kind = 0; kind < 3; kind++)
        for (int64_t n = 10; n <= many; n += n == 10 ? most - 10 : n == most ? 1 : 1 << 20) {
            uint8_t *at = kind == 0   ? shmb_feature(r, "known", SHMB_UINT8, 1, &n)
                          : kind == 1 ? shmb_feature(r, "known", SHMB_UINT8, 2, (int64_t[]){1, n})
                                      : shmb_feature_ragged(r, "known", SHMB_UINT8, 2,
                                                            (lengths[1] = n, lengths), 1, NULL);
            memset(at, 1, (size_t)n);
            shmb_status status = shmb_evaluate(r);
            bool fits = kind < 2 ? n <= most : n + 65 <= most;
            CHECK_STATUS(r, status, fits ? SHMB_MODEL : SHMB_TOO_LARGE);
        }
}

static void the_first_error_stays(void) {
    shmb_set_i64(r, "x", 1);
    memset(feature_u8(r, "large", 70000), 1, 70000); /* TOO_LARGE */
    memset(feature_u8(r, "", 3000), 1, 3000);        /* INVALID, but later */
    memset(shmb_feature(r, "fine", SHMB_FLOAT64, 1, &(int64_t){1000}), 1, 8000);
    memset(shmb_feature_ragged(r, "list", SHMB_INT64, 3, (int64_t[]){1, 2, 3}, 1, NULL), 1, 48);
    shmb_set_strings(r, "texts", 2, (const char *const[]){"a", "b"}, NULL);
    shmb_set_string(r, "text", "c", -1);
    expect(SHMB_TOO_LARGE, "\"large\"");
    shmb_set_i64(r, "", 1);
    shmb_discard(r);
    CHECK(asked(r, 2) == 3);
}

int main(void) {
    struct server server;
    server_start(&server, "filling", SHMB_WAIT_DEFAULT);
    r = runner_open(server.bridge.name);
    names();
    tensors();
    lists();
    texts();
    wanted_dtypes();
    sizes();
    known_fields_grow();
    the_first_error_stays();
    shmb_close(r);
    server_stop(&server);
}
