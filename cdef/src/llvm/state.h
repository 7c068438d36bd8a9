/* The state of LLVM's channel: llvm.c fills it with what the compiler says, llvm_advice.c
 * answers. */
#ifndef SHMB_LLVM_STATE_H
#define SHMB_LLVM_STATE_H

#include "text/spec.h"
#include "llvm/llvm.h"

enum decision { OTHER, INLINING, EVICTION, PRIORITY };

struct llvm {
    struct counted counted; /* first; failure: why a default was advised */
    struct spec spec;       /* of the header; without advice before there is one */
    enum decision decision; /* which advice is asked for */
    /* the feature that the default and the checks need; NULL: not sent */
    const struct spec_field *hint;
    size_t hint_at;
    bool observed;        /* an observation's tensors come, else a line */
    bool skipping;        /* the rest of a line that is too long */
    bool given_up;        /* the rest of the conversation is not asked */
    struct bytes part;    /* what came of a line or of tensors so far */
    struct bytes context; /* the function's name */
    /* for each live range that an eviction chooses from, may it be advised? The last one asks:
     * evict none */
    struct bytes allowed;
    int64_t hinted;                  /* inlining_default, li_size: of this observation */
    struct default_advice *fallback; /* what the user chose; NULL: nothing */
    _Atomic int64_t *left;           /* decisions that are still asked; NULL: all */
    bool beyond;                     /* this observation is none of them */
    struct error unreadable;         /* this observation */
    struct error last;               /* why the last time, `times` in a row */
    int times;
};

/* Appends the answer to the observation that was asked: the runner's advice, or a default. */
shmb_status shmb_llvm_answer(void *state, shmb_runner *r, shmb_status status, struct bytes *out);

#endif
