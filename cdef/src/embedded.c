/* stub: schemes that the C core lacks, served by Python in this process */
#include "local.h"

static shmb_status open_runner(shmb_runner *r, struct url *url, const shmb_options *options) {
    (void)options;
    return fail(&r->broken, SHMB_UNSUPPORTED, "this library has no runner for \"%.60s://\": expected shm://NAME, pipe:///PATH, or a scheme that was registered", url->scheme);
}

const struct runner_kind embedded_runner = {.scheme = "", .open = open_runner};
