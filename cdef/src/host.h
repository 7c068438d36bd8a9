/* The host's side, for the Python extension and the tests. The declarations are in host.cdef, which cffi reads too. */
#ifndef SHMB_HOST_H
#define SHMB_HOST_H

#include <stdbool.h>

#include "shmbridge.h"

#include "host.cdef"

#endif
