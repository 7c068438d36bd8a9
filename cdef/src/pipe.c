#include "runner.h"
static shmb_status pipe_open(shmb_runner *r, struct url *url, const shmb_options *options) { (void)url, (void)options; return fail(&r->broken, SHMB_UNSUPPORTED, "not yet"); }
const struct runner_kind pipe_runner = {.scheme = "pipe", .open = pipe_open};
