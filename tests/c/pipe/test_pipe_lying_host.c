/* A reply that cannot be is CORRUPT for good, at once and without taking memory for what a length
 * claims. */
#include <sys/resource.h>

#include "pipes.h"

static const uint64_t failed = (uint64_t)1 << 63;

static void expect(struct pipes *p, const void *bytes, size_t size, shmb_status status,
                   bool for_good) {
    char text[64];
    shmb_runner *r = pipes_meet(p);
    pipes_start(r, "x");
    pipes_read_frame(p, text, sizeof text);
    pipes_write(p, bytes, size);
    CHECK_STATUS(r, pipes_result(r), status);
    shmb_set_deadline(r, 0.02);
    CHECK_STATUS(r, pipes_evaluate(r, "y"), for_good ? status : SHMB_TIMEOUT);
    shmb_close(r);
    pipes_hang_up(p);
}

static void lengths(struct pipes *p) {
    static const uint64_t lies[] = {(uint64_t)1 << 62, ((uint64_t)4 << 30) + 1, UINT64_MAX,
                                    (uint64_t)1 << 63, ((uint64_t)1 << 63) | (1 << 17)};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        expect(p, &lies[i], sizeof lies[i], SHMB_CORRUPT, true);
}

static void failures(struct pipes *p) {
    struct {
        uint64_t length;
        uint8_t status;
        char text[4];
    } reply = {5 | failed, SHMB_MODEL, "oh!"};
    expect(p, &reply, 13, SHMB_MODEL, false);
    reply.status = SHMB_CORRUPT;
    expect(p, &reply, 13, SHMB_CORRUPT, true);
    reply.status = 0;
    expect(p, &reply, 13, SHMB_CORRUPT, true);
    reply.status = 99;
    expect(p, &reply, 13, SHMB_CORRUPT, true);
    reply.status = SHMB_MODEL;
    reply.length = 1 | failed; /* no text; then bytes that nobody asked for */
    expect(p, &reply, 9, SHMB_MODEL, false);
    reply.length = failed; /* not even a status: what follows is none */
    expect(p, &reply, 13, SHMB_CORRUPT, true);
}

/* A frame that claims gigabytes and sends little takes little. */
static void claims_gigabytes(struct pipes *p) {
    struct rusage before, after;
    uint64_t length = (uint64_t)3 << 30;
    char bytes[1000] = {0};
    shmb_runner *r = pipes_meet(p);
    getrusage(RUSAGE_SELF, &before);
    shmb_set_deadline(r, 0.05);
    pipes_start(r, "x");
    pipes_write(p, &length, sizeof length);
    pipes_write(p, bytes, sizeof bytes);
    CHECK_STATUS(r, pipes_result(r), SHMB_TIMEOUT);
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 10000); /* KiB */
    shmb_close(r);
    pipes_hang_up(p);
}

static void speaks_out_of_turn(struct pipes *p) {
    char text[64];
    shmb_runner *r = pipes_meet(p);
    pipes_start(r, "x");
    pipes_read_frame(p, text, sizeof text);
    struct {
        uint64_t a, b;
    } two = {0, 0};
    pipes_write(p, &two, sizeof two);
    CHECK_STATUS(r, pipes_result(r), SHMB_OK);
    CHECK_STATUS(r, pipes_evaluate(r, "y"), SHMB_CORRUPT);
    shmb_close(r);
    pipes_hang_up(p);
}

int main(void) {
    struct pipes p;
    pipes_make(&p, "");
    lengths(&p);
    failures(&p);
    claims_gigabytes(&p);
    speaks_out_of_turn(&p);
    pipes_remove(&p);
}
