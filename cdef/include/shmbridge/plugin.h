/**
 * shmbridge: add your own SerDes and runner kinds.
 *
 * A SerDes converts messages to bytes and back. A runner kind implements a URL's scheme. Register
 * them at program start, from any thread; they cannot be removed. A program that contains two
 * copies of the library (such as a static and a shared one, or a Python extension) has two
 * registries.
 *
 * Ownership: the caller owns the structs and the data that they point to, and keeps them until the
 * process ends.
 */
#ifndef SHMBRIDGE_PLUGIN_H
#define SHMBRIDGE_PLUGIN_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/** ---- Sinks ---------------------------------------------------------------------------------- */

/** Receives the result of a plug-in's function; valid during that call, in its thread. */
typedef struct shmb_sink shmb_sink;

/**
 * Appends `bytes` uninitialised bytes and returns their address, valid until the next call. Returns
 * NULL if memory runs out; the plug-in's call then fails automatically.
 */
void *shmb_sink_bytes(shmb_sink *sink, size_t bytes);
/**
 * Adds a field of any kind to the message; dims as in shmb_tensor. Returns the address for its
 * values, 64-byte aligned, and sets *offsets to the address for a list's int64[rows + 1] offsets;
 * offsets may be NULL if the field is no list. After an error it returns private memory or NULL,
 * and the plug-in's call fails automatically. The sink does not check offsets: check those that you
 * receive from outside.
 */
void *shmb_sink_field(shmb_sink *sink, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets);
/** Sets the dtype that the decoded request wants for its advice. */
void shmb_sink_want(shmb_sink *sink, shmb_dtype dtype);
/**
 * Sets the reason why the call fails. Longer texts are cut to 2047 bytes and end with "…". Returns
 * status, or SHMB_INVALID for an unknown one. Only the first failure of a call is kept.
 */
shmb_status shmb_sink_fail(shmb_sink *sink, shmb_status status, const char *text);
/**
 * In a runner kind's open: sets the deadline of its answers, in seconds, if the caller gives none.
 * Default: SHMB_DEADLINE. Infinity: no limit.
 */
void shmb_sink_deadline(shmb_sink *sink, double seconds);
/**
 * Has shmb_interrupt ended this evaluate? A runner kind that waits checks at least every 100 ms; if
 * true, it returns shmb_sink_fail(sink, SHMB_INTERRUPTED, ...). The result stays true until the
 * call ends; it does not affect the next evaluate.
 */
int32_t shmb_sink_interrupted(shmb_sink *sink);

/** ---- SerDes --------------------------------------------------------------------------------- */

/** Request or advice. */
typedef enum shmb_side {
    /** The compiler's message, with the features. */
    SHMB_REQUEST = 0,
    /** The model's message. */
    SHMB_ADVICE = 1
} shmb_side;

/**
 * A SerDes. Set size = sizeof(shmb_serdes). Its functions may be called from several threads at
 * once, and return SHMB_OK or what shmb_sink_fail returned.
 */
typedef struct shmb_serdes {
    /** sizeof(shmb_serdes). */
    size_t size;
    /** The name in ?serdes=NAME. */
    const char *name;
    /** Passed to every call. */
    void *context;
    /** Writes the message with shmb_sink_bytes. want: the request's wanted dtype, also written. */
    shmb_status (*encode)(void *context, shmb_side side, const shmb_tensor *fields, int64_t count,
                          shmb_dtype want, shmb_sink *bytes);
    /**
     * Reads bytes[size], which are untrusted, and adds the message's fields. want: the dtype that
     * the request wants for its advice. A decoder of advice converts to it exactly, or fails with
     * SHMB_INEXACT or SHMB_MISMATCH.
     */
    shmb_status (*decode)(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message);
} shmb_serdes;

/**
 * Registers a SerDes. Errors: INVALID (no name or function, or a wrong size), IN_USE (the name is
 * already registered), NO_MEMORY (the limit is 256).
 */
shmb_status shmb_register_serdes(const shmb_serdes *serdes);

/** ---- Runner kinds --------------------------------------------------------------------------- */

/**
 * A runner kind. Set size = sizeof(shmb_runner_kind). Each runner is used in one thread at a time;
 * several threads may call open at once.
 *
 * The library handles recovery: after NO_HOST, BUSY, HOST_GONE, CLOSED or CORRUPT it calls open
 * again, with a connect_timeout of at most a second, and repeats the question. It never calls
 * evaluate after HOST_GONE, CLOSED or CORRUPT, nor in a forked child; there it may call close.
 */
typedef struct shmb_runner_kind {
    /** sizeof(shmb_runner_kind). */
    size_t size;
    /** The URL's scheme, without "://". */
    const char *scheme;
    /** Passed to open. */
    void *context;
    /**
     * Sets *state, which evaluate and close receive. where: the URL after "scheme://", with the
     * options that this library does not know. options: those of the caller and the URL, with
     * connect_timeout in seconds; retries, backoff and default_advice are 0, and log ignores its
     * line. On failure, call only shmb_sink_fail and shmb_sink_deadline.
     */
    shmb_status (*open)(void *context, const char *where, const shmb_options *options, void **state,
                        shmb_sink *failure);
    /**
     * Answers one request within deadline seconds (may be infinite), or returns SHMB_TIMEOUT. To
     * support shmb_interrupt, check shmb_sink_interrupted. The features are readable during the
     * call. Write the advice to the sink; the library checks that it has the wanted dtype.
     */
    shmb_status (*evaluate)(void *state, const shmb_tensor *features, int64_t count,
                            shmb_dtype want, double deadline, shmb_sink *advice);
    /** Frees the state. May be NULL. */
    void (*close)(void *state);
} shmb_runner_kind;

/** Registers a runner kind. Errors: as shmb_register_serdes. */
shmb_status shmb_register_runner(const shmb_runner_kind *kind);

#ifdef __cplusplus
}
#endif

#endif
