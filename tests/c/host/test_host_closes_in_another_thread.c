/* A host may be closed while another thread takes a request whose slot has no memory yet: the file
 * stays open until then, and the runner gets CLOSED. */
#include <errno.h>
#include <stdatomic.h>

#include "bridge.h"

static struct bridge b;
static atomic_bool armed;
static pthread_t closer;

static void *close_host(void *unused) {
    (void)unused;
    shmb_host_close(b.host);
    return NULL;
}

/* In place of the C library's: the host is closed meanwhile, if nothing prevents that. */
int posix_fallocate(int fd, off_t at, off_t bytes) {
    if (atomic_exchange(&armed, false)) {
        CHECK(pthread_create(&closer, NULL, close_host, NULL) == 0);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return fallocate(fd, 0, at, bytes) ? errno : 0;
}

int main(void) {
    shmb_plan plan = small_plan;
    plan.slots = 4;
    bridge_open(&b, "closes-meanwhile", plan, SHMB_WAIT_DEFAULT);
    shmb_runner *r = bridge_connect(&b, "");
    shmb_ticket ticket = 0;
    for (int i = 0; i < 3; i++) ticket = send_x(r, i); /* the third is in a slot without memory */
    for (int i = 0; i < 2; i++) bridge_answer(&b, bridge_receive(&b));
    armed = true;
    CHECK(shmb_host_receive(b.host, 5000000000) >= 0);
    CHECK(!armed && pthread_join(closer, NULL) == 0);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_CLOSED);
    int64_t advice;
    CHECK_STATUS(r, shmb_receive_i64(r, ticket, &advice), SHMB_CLOSED);
    shmb_close(r);
    bridge_close(&b);
}
