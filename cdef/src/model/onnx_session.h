/* A model that ONNX Runtime has loaded, and the library that runs it. */
#ifndef SHMB_ONNX_SESSION_H
#define SHMB_ONNX_SESSION_H

#include "model/model.h"
#include "model/onnxruntime.h"

struct session {
    const OrtFunction *api;
    OrtMemoryInfo *memory;
    OrtAllocator *names;
    OrtSession *session;
    bool bindable; /* on other devices than the CPU, binding an input copies it there */
};

/* Loads the library, which stays, and the model, as the URL's options say. After a failure, too, it
 * is to be closed. */
shmb_status shmb_onnx_session_open(struct session *s, const char *file, struct url *url,
                                   struct error *e);
void shmb_onnx_session_close(struct session *s);
/* SHMB_OK, or ONNX Runtime's failure as ours. */
shmb_status shmb_onnx_check(const OrtFunction *api, OrtStatus *status, shmb_status as,
                            const char *file, struct error *e);

#endif
