/* shmbridge's C API. The declarations and their documentation are in shmbridge.cdef, which cffi reads too. */
#ifndef SHMBRIDGE_H
#define SHMBRIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shmb_runner shmb_runner;
#include "shmbridge.cdef"

#ifdef __cplusplus
}
#endif

#endif
