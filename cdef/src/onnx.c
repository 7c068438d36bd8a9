/* stub */
#include "model.h"

static shmb_status open_runner(shmb_runner *r, struct url *url, const shmb_options *options) {
    (void)options;
    return fail(&r->broken, SHMB_UNSUPPORTED, "no runner for \"%.60s://\" yet", url->scheme);
}

const struct runner_kind onnx_runner = MODEL_RUNNER("onnx", open_runner);
