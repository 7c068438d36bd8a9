/* shmbridge: SerDes and runner kinds of your own.
 *
 * A SerDes turns messages into bytes and back; a runner kind is what stands behind a URL's scheme.
 * Register at the program's start, from any thread; what is registered stays. A program that holds
 * the library twice (a static copy beside the shared one, or a Python extension) has two
 * registries.
 *
 * Ownership: the structs and what they point to are the caller's, and must live for ever.
 */
#ifndef SHMBRIDGE_PLUGIN_H
#define SHMBRIDGE_PLUGIN_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sinks ----------------------------------------------------------------------------------- */

/** Where a plug-in's function puts what it makes; valid during that call, in its thread. */
typedef struct shmb_sink shmb_sink;

/**
 * Room for that many more bytes behind those written so far, uninitialised, valid until the next
 * call; NULL when there is no memory, which fails the plug-in's call by itself.
 */
void *shmb_sink_bytes(shmb_sink *sink, size_t bytes);
/**
 * Adds a field of any kind to the message being made; dims as in shmb_tensor. Returns where its
 * values go, 64-byte aligned; *offsets (may be NULL for what is no list) gets where a list's
 * int64[rows + 1] go. An error makes the memory private, or NULL, and fails the plug-in's call by
 * itself. The sink does not check offsets: what comes from outside must be checked.
 */
void *shmb_sink_field(shmb_sink *sink, const char *name, shmb_dtype dtype, shmb_kind kind,
                      int32_t rank, const int64_t *dims, int64_t **offsets);
/** The request that is being decoded wants its advice as dtype. */
void shmb_sink_want(shmb_sink *sink, shmb_dtype dtype);
/**
 * Says why the call fails; a text of more than 2047 bytes is cut, and ends with "…". Returns
 * status, or SHMB_INVALID for one that does not exist. The first failure of a call stays.
 */
shmb_status shmb_sink_fail(shmb_sink *sink, shmb_status status, const char *text);
/**
 * In a runner kind's open: the seconds that its answers may take where the caller gives no
 * deadline. The default is SHMB_DEADLINE. Infinity: no limit.
 */
void shmb_sink_deadline(shmb_sink *sink, double seconds);
/**
 * Has shmb_interrupt asked this evaluate to end? A runner kind that waits looks at least every 100
 * ms, and then returns shmb_sink_fail(sink, SHMB_INTERRUPTED, ...). Once true it stays so during
 * the call, and the next evaluate is not ended too.
 */
int32_t shmb_sink_interrupted(shmb_sink *sink);

/* ---- SerDes ---------------------------------------------------------------------------------- */

/** Which of the two messages is meant. */
typedef enum shmb_side {
    /** The compiler's, with the features. */
    SHMB_REQUEST = 0,
    /** The model's. */
    SHMB_ADVICE = 1
} shmb_side;

/**
 * A SerDes. Set size = sizeof(shmb_serdes). Its functions may be called from several threads at
 * once, and return SHMB_OK or what shmb_sink_fail returned.
 */
typedef struct shmb_serdes {
    /** sizeof(shmb_serdes). */
    size_t size;
    /** As in ?serdes=NAME. */
    const char *name;
    /** Given back in every call. */
    void *context;
    /** Writes the message's bytes with shmb_sink_bytes. want: the request's wish, to be written. */
    shmb_status (*encode)(void *context, shmb_side side, const shmb_tensor *fields, int64_t count,
                          shmb_dtype want, shmb_sink *bytes);
    /**
     * Reads bytes[size], which may hold anything, and adds the message's fields; nothing that they
     * say may be trusted. want: the dtype that the request wants its advice in; a decoder of advice
     * makes it that dtype where it can do so exactly, and else fails with SHMB_INEXACT or
     * SHMB_MISMATCH.
     */
    shmb_status (*decode)(void *context, shmb_side side, const void *bytes, size_t size,
                          shmb_dtype want, shmb_sink *message);
} shmb_serdes;

/**
 * Registers a SerDes. Errors: INVALID (no name or function, another size), IN_USE (the name is
 * taken by another), NO_MEMORY (there are 256).
 */
shmb_status shmb_register_serdes(const shmb_serdes *serdes);

/* ---- Runner kinds ---------------------------------------------------------------------------- */

/**
 * A runner kind. Set size = sizeof(shmb_runner_kind). A runner is for one thread at a time; open
 * may be called by several at once.
 *
 * Recovery is the library's business: an evaluate that ends in NO_HOST, BUSY, HOST_GONE, CLOSED or
 * CORRUPT is asked anew of what open gives then, which gets a second at most. After HOST_GONE,
 * CLOSED or CORRUPT evaluate is not called again, nor in a forked child, where close may be.
 */
typedef struct shmb_runner_kind {
    /** sizeof(shmb_runner_kind). */
    size_t size;
    /** The URL's scheme, without "://". */
    const char *scheme;
    /** Given back to open. */
    void *context;
    /**
     * Sets *state, which the other two get. where: what follows "scheme://", with the options that
     * this library does not know. options: the caller's and the URL's, connect_timeout the seconds
     * to wait for who is not there; retries, backoff and default_advice are 0, and log ignores
     * its line. failure takes no fields and no bytes, but shmb_sink_deadline.
     */
    shmb_status (*open)(void *context, const char *where, const shmb_options *options, void **state,
                        shmb_sink *failure);
    /**
     * Answers one request within deadline seconds, which may be infinite, or returns SHMB_TIMEOUT;
     * shmb_interrupt ends it only where it looks at shmb_sink_interrupted. The features are
     * readable during the call. Advice goes to the sink; the library checks that it has the wanted
     * dtype.
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
