#ifndef SHMB_CONVERSATION_INFO_H
#define SHMB_CONVERSATION_INFO_H

#include <stdbool.h>

#include "shmbridge.h"

typedef struct shmb_conversation_info {
    uint64_t asked, defaulted; /* defaulted: answered with the default advice */
    uint64_t skipped;          /* llvm: lines that were not understood */
    shmb_status status;        /* of the first failure since then; 0: none */
    const char *why;           /* its text */
    /* frames: the compiler that talks is a runner of ours, whose advice comes with its dtype */
    bool typed;
} shmb_conversation_info;

#endif
