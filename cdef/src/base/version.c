#include "shmbridge.h"

const char *shmb_version(void) { return SHMB_VERSION_TEXT; }
