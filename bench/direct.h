/* The same model without this library: what in_process.c compares a runner with. A file for each
 * kind: onnx_direct.c, … */
#ifndef DIRECT_H
#define DIRECT_H

#include "shmbridge.h"

/* Loads the model that arguments name; called once. Exits with a message when it cannot. */
void direct_load(char **arguments, const shmb_tensor *inputs, size_t count);
/* One thread's use of it, with its own memory. */
void *direct_open(void);
/* Where an input is to be written. */
void *direct_input(void *use, size_t index);
/* Computes; where the first output is. */
const void *direct_run(void *use);

#endif
