/* The same model without this library: in_process.c compares a runner with it. A file for each
 * kind: onnx_direct.c, … */
#ifndef DIRECT_H
#define DIRECT_H

#include "shmbridge.h"

/* Loads the model that arguments name; called once. Exits with a message on failure. */
void direct_load(char **arguments, const shmb_tensor *inputs, size_t count);
/* One thread's use of it, with its own memory. */
void *direct_open(void);
/* The address of an input. */
void *direct_input(void *use, size_t index);
/* Computes; returns the address of the first output. */
const void *direct_run(void *use);

#endif
