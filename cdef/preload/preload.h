/* What the files of the preloaded library share. */
#ifndef SHMB_PRELOAD_H
#define SHMB_PRELOAD_H

/* $SHMBRIDGE_LLVM_BASE, which the paths of channels begin with; "" for none. */
const char *preload_prefix(void);

#endif
