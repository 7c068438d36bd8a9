/**
 * shmbridge: models compiled ahead of time, which "aot:///MODEL.so" loads.
 *
 * Such a model is a shared library that exports one function, shmb_model_entry, of the type
 * shmb_model_entry_fn. It needs only the types of this header, and does not link libshmbridge.
 * `shmbridge compile` generates one; examples/c/model.c is written by hand.
 *
 * Ownership: the model's library owns the tables, which are static. Threads: each runner has its
 * own state and uses it in one thread at a time; several runners may run at once.
 */
#ifndef SHMBRIDGE_MODEL_H
#define SHMBRIDGE_MODEL_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/** ---- Models compiled ahead of time ---------------------------------------------------------- */

/** A model: its inputs, its outputs and its functions. */
typedef struct shmb_model {
    /** sizeof(shmb_model). */
    size_t size;
    /** The numbers of inputs and outputs. */
    int64_t input_count, output_count;
    /** The inputs and outputs, in the order in which run receives them. */
    const shmb_port *inputs, *outputs;
    /**
     * Creates the *state that run and close receive. weights: the file in the URL's "weights"
     * option, or NULL. Returns NULL, or an error text, which is copied. May be NULL.
     */
    const char *(*open)(const char *weights, void **state);
    /**
     * Computes. inputs[input_count] have the declared order, dtypes and shapes, with data 64-byte
     * aligned. If all declared dims of an output are known, writes to outputs[i].data. Otherwise
     * sets its dims, size and data, the latter to memory of the state, 64-byte aligned and valid
     * until the next run. Returns NULL, or an error text.
     */
    const char *(*run)(void *state, const shmb_tensor *inputs, shmb_tensor *outputs);
    /** Frees the state. May be NULL. */
    void (*close)(void *state);
} shmb_model;

/** Returns the static model; called once for each runner that is opened. */
typedef const shmb_model *(*shmb_model_entry_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
