/* shmbridge: models compiled ahead of time, which "aot:///MODEL.so" loads.
 *
 * Such a model is a shared library that exports one function, shmb_model_entry, of the type
 * shmb_model_entry_fn. It needs nothing of libshmbridge but these types. `shmbridge compile` makes
 * one; examples/c/model.c is one by hand.
 *
 * Ownership: the tables are the library's own, static. Threads: each runner has a state of its own
 * and uses it in one thread at a time, several runners at once.
 */
#ifndef SHMBRIDGE_MODEL_H
#define SHMBRIDGE_MODEL_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models compiled ahead of time ----------------------------------------------------------- */

/** A model: what it takes, what it gives, and how it is run. */
typedef struct shmb_model {
    /** sizeof(shmb_model). */
    size_t size;
    /** How many inputs and outputs there are. */
    int64_t input_count, output_count;
    /** The inputs and outputs, in the order in which run gets them. */
    const shmb_port *inputs, *outputs;
    /**
     * Begins a use of the model: *state goes to the others. weights: the file of the URL's
     * "weights" option, or NULL. Returns NULL, or why not (the text is copied). May be NULL itself.
     */
    const char *(*open)(const char *weights, void **state);
    /**
     * Computes. inputs[input_count]: in the declared order, of the declared dtypes and shapes, data
     * 64-byte aligned. Writes to outputs[i].data, where the output's declared dims are all known;
     * for others it sets dims, size and data to memory of the state, 64-byte aligned, valid until
     * its next run. Returns NULL, or why not.
     */
    const char *(*run)(void *state, const shmb_tensor *inputs, shmb_tensor *outputs);
    /** Ends the use, and frees the state. May be NULL. */
    void (*close)(void *state);
} shmb_model;

/** Returns the model, static; called once for each runner that is opened. */
typedef const shmb_model *(*shmb_model_entry_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
