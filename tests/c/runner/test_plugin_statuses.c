/* A plug-in may return any number: one that is no shmb_status, -1 above all, is an error like
 * others, never a wait without end. */
#include "kinds.h"
#include "pipes.h"

static int returned;

static shmb_status encode(void *context, shmb_side side, const shmb_tensor *f, int64_t n,
                          shmb_dtype want, shmb_sink *bytes) {
    CHECK(shmb_sink_bytes(bytes, 1));
    return SHMB_OK;
}

static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message) {
    return size == 1 ? (shmb_status)returned
                     : shmb_sink_fail(message, (shmb_status)returned, "as it says");
}

static const shmb_serdes serdes = {
    .size = sizeof serdes, .name = "careless", .encode = encode, .decode = decode};

static OPENS(open_it) { return strcmp(where, "closed") == 0 ? (shmb_status)returned : SHMB_OK; }

static ANSWERS(evaluate) { return (shmb_status)returned; }

static const shmb_runner_kind kind = {
    .size = sizeof kind, .scheme = "careless", .open = open_it, .evaluate = evaluate};

static void of_serdes(const struct pipes *p, size_t frame, const char *text) {
    shmb_runner *r = pipes_connect(p);
    char sent[8];
    for (int i = 0; i < 2; i++) {
        pipes_start(r, "x");
        CHECK(pipes_read_frame(p, sent, sizeof sent) == 1);
        pipes_write_frame(p, 0, "ab", frame);
        CHECK_STATUS(r, pipes_result(r), SHMB_INVALID);
        CHECK(strstr(shmb_error_message(r), text));
    }
    shmb_close(r);
}

static void of_runner(void) {
    open_fails("careless://closed", NULL, SHMB_INVALID, "");
    shmb_runner *r = runner_open("careless://x");
    CHECK_FAILS(r, shmb_evaluate(r), SHMB_INVALID, "\"careless\" failed without saying why");
    shmb_close(r);
}

int main(void) {
    static const int numbers[] = {-1, -2, 22, 256, INT32_MAX};
    struct pipes p;
    CHECK(shmb_register_serdes(&serdes) == SHMB_OK && shmb_register_runner(&kind) == SHMB_OK);
    pipes_make(&p, "");
    snprintf(p.url, sizeof p.url, "pipe://%s?serdes=careless", p.path);
    pipes_listen(&p);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        returned = numbers[i];
        of_serdes(&p, 1, "\"careless\" failed without saying why");
        of_serdes(&p, 2, "as it says");
        of_runner();
    }
    pipes_remove(&p);
}
