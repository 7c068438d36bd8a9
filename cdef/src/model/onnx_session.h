/* The loaded library of ONNX Runtime, and the sessions that runners of a file share, in any
 * thread. */
#ifndef SHMB_ONNX_SESSION_H
#define SHMB_ONNX_SESSION_H

#include <sys/stat.h>

#include "model/model.h"
#include "model/onnxruntime.h"

/* A loaded ONNX Runtime. */
struct runtime {
    void *library;
    const OrtFunction *api;
    OrtEnv *env;
    OrtMemoryInfo *memory;
    OrtAllocator *names;
    struct runtime *next;
};

/* What of the URL makes one session differ from another. */
struct choice {
    int threads;
    const char *providers, *custom_ops, *library; /* or NULL */
};

struct session {
    const struct runtime *runtime;
    OrtSession *session;
    bool bindable; /* on other devices than the CPU, binding an input copies it there */
    struct stat file;
    char *choice; /* as text */
    int users;
    struct session *next;
};

/* Reads the URL's options. */
shmb_status shmb_onnx_choose(struct choice *c, struct url *url, struct error *e);
/* The session of that file and choice, loaded if nobody has it; NULL with e. */
struct session *shmb_onnx_session_get(const char *file, const struct choice *c, struct error *e);
void shmb_onnx_session_drop(struct session *s);
/* SHMB_OK, or ONNX Runtime's failure as ours. */
shmb_status shmb_onnx_check(const OrtFunction *api, OrtStatus *status, shmb_status as,
                            const char *file, struct error *e);

#endif
