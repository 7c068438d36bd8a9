/* Strings and lists of strings arrive byte for byte, zero bytes included, both ways. */
#include "bridge.h"

static void expect(const shmb_tensor *t, int64_t row, const char *text, int64_t bytes) {
    CHECK(t->offsets[row + 1] - t->offsets[row] == bytes);
    CHECK(memcmp((const char *)t->data + t->offsets[row], text, (size_t)bytes) == 0);
}

static void no_text(shmb_runner *r) {
    shmb_set_string(r, "x", NULL, -1);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "\"x\": expected a text, found NULL"));
    shmb_set_strings(r, "x", 1, NULL, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set_strings(r, "x", 2, (const char *const[]){"a", NULL}, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    CHECK(strstr(shmb_error_message(r), "\"x\": expected a text, found NULL"));
    shmb_set_strings(r, "x", 2, (const char *const[]){"a", NULL}, (const int64_t[]){1, 1});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set_string(r, "echo", NULL, 0); /* empty ones need none */
    shmb_set_strings(r, "texts", 2, (const char *const[]){"a", NULL}, (const int64_t[]){1, 0});
    shmb_set_strings(r, "none", 1, NULL, (const int64_t[]){0});
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
    CHECK(shmb_advice_count(r) == 3);
}

int main(void) {
    struct server server;
    server_start(&server, "strings", SHMB_WAIT_DEFAULT);
    shmb_runner *r;
    CHECK_STATUS(r, shmb_open(server.bridge.name, NULL, &r), SHMB_OK);
    for (int i = 0; i < 100; i++) {
        char long_text[600];
        int64_t length = 5 * i + 1;
        memset(long_text, 'a' + i % 26, sizeof long_text);
        shmb_set_string(r, "echo", long_text, length);
        shmb_set_string(r, "to the zero", "gr\xc3\xbc\xc3\x9f", -1);
        shmb_set_strings(r, "texts", 3, (const char *const[]){"one", "", long_text},
                         (const int64_t[]){3, 0, length});
        shmb_set_strings(r, "zeros", 2, (const char *const[]){"a\0b", "\0"},
                         (const int64_t[]){3, 1});
        shmb_tensor t;
        CHECK_STATUS(r, shmb_evaluate(r), SHMB_OK);
        CHECK_STATUS(r, shmb_advice(r, "echo", &t), SHMB_OK);
        CHECK(t.kind == SHMB_STRING && t.dtype == SHMB_UINT8 && t.rank == 1 && t.size == length &&
              t.dims[0] == length);
        CHECK(memcmp(t.data, long_text, (size_t)length) == 0);
        CHECK_STATUS(r, shmb_advice(r, "to the zero", &t), SHMB_OK);
        CHECK(t.size == 6 && memcmp(t.data, "gr\xc3\xbc\xc3\x9f", 6) == 0);
        CHECK_STATUS(r, shmb_advice(r, "texts", &t), SHMB_OK);
        CHECK(t.kind == SHMB_STRINGS && t.dims[0] == 3 && t.dims[1] == 3 + length);
        expect(&t, 0, "one", 3);
        expect(&t, 1, "", 0);
        expect(&t, 2, long_text, length);
        CHECK_STATUS(r, shmb_advice(r, "zeros", &t), SHMB_OK);
        expect(&t, 0, "a\0b", 3);
        expect(&t, 1, "\0", 1);
    }
    shmb_set_strings(r, "x", -1, NULL, NULL);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    shmb_set_string(r, "x", NULL, 3);
    CHECK_STATUS(r, shmb_evaluate(r), SHMB_INVALID);
    no_text(r);
    shmb_close(r);
    server_stop(&server);
    return 0;
}
