/* A host whose model is a runner of this process, such as onnx:// or aot://. */
#ifndef SHMB_SERVE_H
#define SHMB_SERVE_H

#include "host/host.h"

/* Answers requests until one comes that the runner refuses, or as shmb_host_receive; *answered gets
 * how many. Returns the key of that request, which has no reply, or -shmb_status: -SHMB_TIMEOUT
 * also after a while of answering, so that the caller can look around. */
int64_t shmb_serve(shmb_host *h, shmb_runner *r, int64_t timeout_ns, int64_t *answered);

#endif
