#include "serdes.h"
static shmb_status encode(void *context, shmb_side side, const shmb_tensor *fields, int64_t n, shmb_dtype want, shmb_sink *bytes) { (void)context, (void)side, (void)fields, (void)n, (void)want; return sink_fail(bytes, SHMB_UNSUPPORTED, "not yet"); }
static shmb_status decode(void *context, shmb_side side, const void *bytes, size_t size, shmb_dtype want, shmb_sink *message) { (void)context, (void)side, (void)bytes, (void)size, (void)want; return sink_fail(message, SHMB_UNSUPPORTED, "not yet"); }
const shmb_serdes serdes_flatbuffers = {.size = sizeof(shmb_serdes), .name = "flatbuffers", .encode = encode, .decode = decode};
