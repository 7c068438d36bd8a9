/**
 * shmbridge: how a compiler asks a machine-learning model for advice.
 *
 * Read this header from top to bottom as a tutorial: open, fill, ask, read, close, errors.
 * Three more headers, which include this one, serve special needs: shmbridge/model.h (models
 * compiled ahead of time), shmbridge/environment.h (reinforcement learning) and
 * shmbridge/plugin.h (your own SerDes and runner kinds).
 *
 *     shmb_runner *r;
 *     shmb_open("shm://inliner", NULL, &r);            // if this fails, evaluate reports it
 *     float *x = shmb_feature_f32(r, "features", 300); // points into shared memory: write here
 *     ...
 *     int64_t advice;
 *     if (shmb_evaluate_i64(r, &advice) != SHMB_OK) advice = my_heuristic(...);
 *     shmb_close(r);
 *
 * Threads: open one runner per thread, because a runner may be used in one thread at a time. A call
 * during another thread's evaluate usually makes the runner SHMB_INVALID for good, but not always.
 * Functions without a runner are thread-safe. Signal handlers may call only shmb_interrupt.
 *
 * After fork, the child opens its own runner. With an inherited one it may only read the last
 * advice and error, and close it; every other call returns SHMB_FORKED.
 *
 * Ownership: a runner owns all memory that it returns, until shmb_close frees it. A NULL output
 * pointer is SHMB_INVALID. Strings are UTF-8 (other bytes reach Python as surrogate escapes and
 * return unchanged). Numbers use the machine's byte order, and times are in seconds.
 *
 * Functions with a dtype in their names, such as shmb_set_i64, are inline, so the library exports
 * only the functions that they call.
 */
#ifndef SHMBRIDGE_H
#define SHMBRIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** This header's version, with _MINOR and _PATCH. shmb_version() returns the library's. */
#define SHMB_VERSION_MAJOR 0
#define SHMB_VERSION_MINOR 3
#define SHMB_VERSION_PATCH 0
/** A version as one number, for #if SHMB_VERSION >= SHMB_VERSION_OF(0, 3, 0). */
#define SHMB_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
/** This header's version as one number. */
#define SHMB_VERSION SHMB_VERSION_OF(SHMB_VERSION_MAJOR, SHMB_VERSION_MINOR, SHMB_VERSION_PATCH)

/** The library's version at run time, "MAJOR.MINOR.PATCH"; static. */
const char *shmb_version(void);

/** A connection to a model. shmb_open creates it; shmb_close frees it. */
typedef struct shmb_runner shmb_runner;

/** ---- Results -------------------------------------------------------------------------------- */

/**
 * The result of a call. HOST_GONE, CLOSED, CORRUPT and FORKED are permanent: every later evaluate
 * of that runner immediately returns the same status, so close it and open another, as a runner
 * with retries does by itself. A runner that failed to open keeps that status too. After TIMEOUT
 * it asks again when the late reply has arrived (see deadline). After any other status you can send
 * the next request.
 */
typedef enum shmb_status {
    /** Success. */
    SHMB_OK = 0,
    /** An argument, URL or option is invalid. */
    SHMB_INVALID = 1,
    /** This library has no runner for that scheme, or the program is linked statically. */
    SHMB_UNSUPPORTED = 2,
    /** No live host of that name appeared within the connect timeout. */
    SHMB_NO_HOST = 3,
    /** No channel became free within the deadline, or a longer connect timeout. */
    SHMB_BUSY = 4,
    /** A live host already has that name. */
    SHMB_IN_USE = 5,
    /** The other side uses another protocol version. */
    SHMB_INCOMPATIBLE = 6,
    /** Another user owns the segment, or its permissions let other users in. */
    SHMB_PERMISSION = 7,
    /** The received bytes violate the protocol. */
    SHMB_CORRUPT = 8,
    /** The host died. */
    SHMB_HOST_GONE = 9,
    /** The runner died or disconnected before the reply. */
    SHMB_RUNNER_GONE = 10,
    /** The host closed the bridge, or this handle is closed. */
    SHMB_CLOSED = 11,
    /** The deadline passed, or an earlier reply is still late. Late replies are discarded. */
    SHMB_TIMEOUT = 12,
    /** shmb_interrupt, or a signal in Python, ended the call. */
    SHMB_INTERRUPTED = 13,
    /** The message does not fit its slot. */
    SHMB_TOO_LARGE = 14,
    /** Names, dtypes or shapes differ from the expected ones. */
    SHMB_MISMATCH = 15,
    /** A value is not exactly representable in the wanted dtype. */
    SHMB_INEXACT = 16,
    /** The model failed; the error message is the model's. */
    SHMB_MODEL = 17,
    /** The host discarded the request without a reply. */
    SHMB_DROPPED = 18,
    /** The runner was inherited through fork. */
    SHMB_FORKED = 19,
    /** A system call failed; the message contains errno's text. */
    SHMB_SYSTEM = 20,
    /** Out of memory. */
    SHMB_NO_MEMORY = 21
} shmb_status;

/** ---- Tensors -------------------------------------------------------------------------------- */

/** The type of a tensor's elements. */
typedef enum shmb_dtype {
    /** No preference. Valid only as the wanted dtype. */
    SHMB_ANY = 0,
    /** One byte, 0 or 1. */
    SHMB_BOOL = 1,
    /** Signed, 1 byte. */
    SHMB_INT8 = 2,
    /** Signed, 2 bytes. */
    SHMB_INT16 = 3,
    /** Signed, 4 bytes. */
    SHMB_INT32 = 4,
    /** Signed, 8 bytes. */
    SHMB_INT64 = 5,
    /** Unsigned, 1 byte. */
    SHMB_UINT8 = 6,
    /** Unsigned, 2 bytes. */
    SHMB_UINT16 = 7,
    /** Unsigned, 4 bytes. */
    SHMB_UINT32 = 8,
    /** Unsigned, 8 bytes. */
    SHMB_UINT64 = 9,
    /** IEEE 754, half precision. */
    SHMB_FLOAT16 = 10,
    /** IEEE 754, single precision. */
    SHMB_FLOAT32 = 11,
    /** IEEE 754, double precision. */
    SHMB_FLOAT64 = 12,
    /** The upper half of a float32. */
    SHMB_BFLOAT16 = 13
} shmb_dtype;

/** The kind of a message's field. */
typedef enum shmb_kind {
    /** dims[rank], row-major. */
    SHMB_TENSOR = 0,
    /** One UTF-8 string: uint8, dims = {bytes}. */
    SHMB_STRING = 1,
    /** A list of strings: dims = {count, bytes}; offsets[count + 1] into the bytes. */
    SHMB_STRINGS = 2,
    /**
     * A list of rows: dims = {rows, values, ...}; offsets[rows + 1] into the values (Arrow's list
     * layout).
     */
    SHMB_RAGGED = 3
} shmb_kind;

/** Bounds and defaults. */
enum shmb_constant {
    /** The maximum rank of a tensor. */
    SHMB_MAX_RANK = 8,
    /** Default deadline of an evaluate in seconds; the caller or the host can change it. */
    SHMB_DEADLINE = 10,
    /** The length of shmb_stats.failures, with room for future statuses. */
    SHMB_STATUSES = 32
};

/**
 * A view of a named tensor in memory. The function that fills it documents who owns the memory
 * behind the pointers and how long it stays valid.
 */
typedef struct shmb_tensor {
    /** The name in the message. */
    const char *name;
    /** The elements' type. */
    shmb_dtype dtype;
    /** Tensor, string or list. */
    shmb_kind kind;
    /** The values' rank. Sizes: dims[0..rank) of a tensor or string, dims[1..1+rank) of a list. */
    int32_t rank;
    /** The number of elements in data. */
    int64_t size;
    /** The sizes, in the order that kind defines. */
    const int64_t *dims;
    /** A list's offsets; NULL for other kinds. */
    const int64_t *offsets;
    /**
     * The elements, 64-byte aligned; advice of at most 32 bytes is 8-byte aligned. Text is not
     * zero-terminated.
     */
    const void *data;
} shmb_tensor;

/** A declared input or output of a model. */
typedef struct shmb_port {
    /** The name of the feature or advice. */
    const char *name;
    /** The elements' type. */
    shmb_dtype dtype;
    /** The number of dims. */
    int32_t rank;
    /** dims[rank]; -1: any size. */
    const int64_t *dims;
} shmb_port;

/** "float32", ...; "unknown" for an invalid dtype; static. */
const char *shmb_dtype_name(shmb_dtype dtype);
/** The bytes of one element; 0 for an invalid dtype. */
size_t shmb_dtype_size(shmb_dtype dtype);

/** ---- Open ----------------------------------------------------------------------------------- */

/** How a runner waits for the host. */
typedef enum shmb_wait {
    /** Adaptive. */
    SHMB_WAIT_DEFAULT = 0,
    /** Spin while that helps, then sleep. */
    SHMB_WAIT_ADAPTIVE = 1,
    /** Never sleep: lowest latency, but each waiter occupies a core. */
    SHMB_WAIT_SPIN = 2,
    /** Sleep immediately: no CPU time while waiting. */
    SHMB_WAIT_BLOCK = 3
} shmb_wait;

/**
 * Options of a runner. Set size = sizeof(shmb_options) and zero the rest; a zero field means its
 * default. Times must be 0 or more and may be infinite; other values are INVALID.
 *
 * Recovery. connect_timeout applies only to shmb_open: a retry does not wait for a missing host,
 * but gives a running host up to a second to accept. The pauses between retries add up to the time
 * that a host has to restart: about 4 s with retries=10. The runner skips a pause that would
 * outlast the deadline. After the last retry, evaluates fail immediately (or return the default
 * advice). The runner then tries to connect once per 16 times the backoff, and spends at most a
 * sixteenth of the time on that. After a successful connection it works as before. Bound features
 * keep their addresses. A runner with retries fills the request in its own memory and copies it to
 * the host. It does not change hosts while its host lives. If a host dies after it computed a reply
 * but before it sent it, the question is asked twice; a host that counts or learns sees both.
 *
 * A runner with retries or a default advice accepts features even without a host. With a default
 * advice, shmb_open returns SHMB_OK where it would return NO_HOST, BUSY, HOST_GONE, CLOSED, CORRUPT
 * or TIMEOUT. Without retries, that runner then always returns the default.
 */
typedef struct shmb_options {
    /** sizeof(shmb_options). */
    size_t size;
    /**
     * Seconds to wait for a host that is not running. The default, 0, does not wait and so does
     * not delay builds without a host. Set it if the host and the compiler start together. A
     * running host always gets at least a second to accept or to free a channel: it may be
     * computing or still starting. Existing named pipes get that second too, because they do not
     * show whether their host is alive.
     */
    double connect_timeout;
    /**
     * Seconds for one evaluate, including all retries; infinity: no limit. Default: the host's
     * deadline, which is SHMB_DEADLINE unless its model is slow or it trains.
     *
     * After a TIMEOUT the runner stops asking: evaluate returns TIMEOUT immediately. It asks again
     * after another process's late reply arrives or shmb_set_deadline is called. It asks a model in
     * this process, or a plug-in, again after 16 times the time that was lost.
     */
    double deadline;
    /** How to wait. Default: adaptive. */
    shmb_wait wait;
    /**
     * How often one evaluate reconnects and asks again after NO_HOST, BUSY, HOST_GONE, CLOSED or
     * CORRUPT. Default: 0.
     */
    int32_t retries;
    /**
     * Seconds before the first retry. Each pause is twice as long as the previous one, up to 16
     * times the first; each is then shortened by a random part of up to half. Default: 0.05.
     */
    double backoff;
    /**
     * A finite number in JSON syntax ("0", "-1.5", "1e3") that evaluate returns, with SHMB_OK,
     * instead of NO_HOST, BUSY, HOST_GONE, CLOSED, CORRUPT, TIMEOUT, DROPPED and MODEL. The advice
     * is one tensor "advice" of rank 0. Its dtype is the wanted one (rounded for float32; otherwise
     * exact, or SHMB_INEXACT); without a wanted dtype it is int64, uint64 or float64. The first use
     * is reported with its reason, on stderr or to `log`; shmb_stats counts all uses. Other errors
     * are returned: their cause is in the caller or its machine. Copied by shmb_open. Default:
     * none.
     */
    const char *default_advice;
    /**
     * Receives the library's reports about this runner, one line without a newline each: the first
     * evaluate that fails (except with INTERRUPTED) and the first that returns the default advice.
     * If you report failures yourself, pass a function that does nothing. It is called during
     * evaluate, in the same thread, and must not call the runner. Default: write to stderr.
     */
    void (*log)(void *context, const char *line);
    /** Passed to log. */
    void *log_context;
    /**
     * A description of this runner, such as the source file being compiled. The host sees it with
     * each request, and `shmbridge inspect` shows it. UTF-8; only the last 252 bytes are kept. Only
     * shm:// carries it; other transports ignore it. Copied by shmb_open. Default: "".
     */
    const char *label;
} shmb_options;

/**
 * Opens a runner.
 *
 * url: where the model is. NULL reads the environment variable SHMBRIDGE_URL. A set-uid or set-gid
 * program, or one with file capabilities, ignores this and all other SHMBRIDGE_* variables.
 *
 *     shm://NAME, or NAME       another process, through shared memory
 *     pipe:///PATH?serdes=NAME  another process, through the named pipes PATH.in and PATH.out
 *     onnx:///MODEL.onnx        this process, by ONNX Runtime
 *     tflite:///MODEL.tflite    this process, by LiteRT
 *     aot:///MODEL.so           this process, compiled ahead of time (shmbridge/model.h)
 *     any other scheme          a registered runner kind (shmbridge/plugin.h), else a kind of the
 *                               Python package (python://, grpc://, ...): see "shmbridge embed"
 *
 * docs/deployment.md lists each scheme's options. Every URL accepts the fields of shmb_options, as
 * in "shm://NAME?deadline=0.5&wait=spin".
 *
 * options: may be NULL; options in the URL take precedence.
 *
 * *out: the runner, which the caller owns. It is also set on failure: that runner keeps the error
 * message and accepts every call, and its evaluate returns and reports the same error. So if you
 * handle errors of evaluate, you need no check here. With retries, the runner looks for a host
 * again at each evaluate. On SHMB_NO_MEMORY *out may be NULL; every function accepts NULL and then
 * returns SHMB_NO_MEMORY.
 *
 * Waits up to connect_timeout. Errors: INVALID, UNSUPPORTED, NO_HOST, BUSY, TIMEOUT (a live host
 * did not answer), INCOMPATIBLE, PERMISSION, CORRUPT, SYSTEM, NO_MEMORY.
 */
shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out);

/**
 * How many features the model of a URL expects; -1 if the runner does not know, as over shared
 * memory. agent: one of the URL's agents, which also expects its name as the string "agent"; NULL:
 * the only model.
 */
int64_t shmb_expected_count(const shmb_runner *r, const char *agent);
/** One of these features by its index; the runner owns what *out points to. Errors: INVALID. */
shmb_status shmb_expected_at(shmb_runner *r, const char *agent, int64_t index, shmb_port *out);

/** Closes the runner and frees the memory that it returned. Accepts NULL. Allowed after fork. */
void shmb_close(shmb_runner *r);

/** ---- Fill ----------------------------------------------------------------------------------- */

/**
 * Each call adds one feature to the next request; the order is preserved. The runner owns the
 * returned memory. It is shared with the host where possible, 64-byte aligned, uninitialised, and
 * writable until the next evaluate. Names are copied; a duplicate name in a request is
 * SHMB_INVALID. The runner keeps the first error until evaluate returns it; until then the calls
 * return private memory, so that you can still write safely. They return NULL only if memory of
 * that size cannot be allocated.
 */

/**
 * A tensor of any rank up to SHMB_MAX_RANK. dims[rank] may contain zeros. Counting these as ones,
 * the tensor may have at most 1 TiB. dims may be NULL for rank 0.
 */
void *shmb_feature(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                   const int64_t *dims);
#ifdef __cplusplus
#define SHMB_POINTER(type, from) static_cast<type *>(from)
#else
#define SHMB_POINTER(type, from) ((type *)(from))
#endif
/** A vector of n float32. */
static inline float *shmb_feature_f32(shmb_runner *r, const char *name, int64_t n) {
    return SHMB_POINTER(float, shmb_feature(r, name, SHMB_FLOAT32, 1, &n));
}
/**
 * A list of `rows` rows: row i has lengths[i] values, each a number (rank 1, dims NULL) or a tensor
 * of dims[rank - 1] (rank >= 2). Returns memory for the values of all rows, one row after another.
 */
void *shmb_feature_ragged(shmb_runner *r, const char *name, shmb_dtype dtype, int64_t rows,
                          const int64_t *lengths, int32_t rank, const int64_t *dims);

/**
 * The functions below copy: they read data, text and texts before they return. These may be NULL
 * only if they are empty.
 */

/** Adds a copy of a tensor; the limits of shmb_feature apply. */
void shmb_set(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank, const int64_t *dims,
              const void *data);
/** An int64 of rank 0. */
static inline void shmb_set_i64(shmb_runner *r, const char *name, int64_t value) {
    int64_t *to = SHMB_POINTER(int64_t, shmb_feature(r, name, SHMB_INT64, 0, NULL));
    if (to) *to = value;
}
/** A string of `bytes` bytes; bytes < 0: up to the terminating zero. */
void shmb_set_string(shmb_runner *r, const char *name, const char *text, int64_t bytes);
/** A list of strings. If bytes[count] is NULL, each text ends at its terminating zero. */
void shmb_set_strings(shmb_runner *r, const char *name, int64_t count, const char *const *texts,
                      const int64_t *bytes);

/** Discards the features since the last evaluate, and a pending error of filling. */
void shmb_discard(shmb_runner *r);

/**
 * Binds a feature to one address for the runner's life, so that a compiler can keep its tensors
 * there. If you bind one feature, bind all: shmb_feature and shmb_set are then SHMB_INVALID, and
 * each evaluate sends the current contents of the bound memory. The contents survive an evaluate. A
 * second call with the same name, dtype and dims returns the same address.
 *
 * Bind before the first evaluate and before you fill a feature. A later bind fails, without an
 * effect on the runner. If an earlier bind fails (name, dims, memory), every evaluate returns its
 * error, because the feature would be missing.
 */
void *shmb_bind(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                const int64_t *dims);

/** ---- Ask ------------------------------------------------------------------------------------ */

/**
 * Sends the request and waits for the advice until the deadline. If the host dies, the wait ends
 * within 250 ms, if it gets a CPU. A model in this process can stop only between two of its
 * operators, if at all; TIMEOUT and INTERRUPTED are returned then. The next request always starts
 * empty (bound features stay). The first failure is also a line on stderr or in shmb_options.log.
 * Errors: the first error of filling, and HOST_GONE, CLOSED, TIMEOUT, INTERRUPTED, TOO_LARGE,
 * MISMATCH, MODEL, DROPPED, CORRUPT, FORKED.
 */
shmb_status shmb_evaluate(shmb_runner *r);
/**
 * The same, but asks the host to convert its advice to dtype. If a value is not exactly
 * representable, both sides get SHMB_INEXACT. The advice must be one tensor, string or list.
 * Further errors: INVALID (no such dtype).
 */
shmb_status shmb_evaluate_as(shmb_runner *r, shmb_dtype dtype);

/**
 * The same for advice of exactly one element, of any rank; on error *advice is unchanged. Further
 * errors: MISMATCH.
 *
 * With serdes=bitstream, a host of ML-Compiler-Bridge replies with bytes only, without a dtype.
 * shmb_evaluate then returns MISMATCH, because an int and a float look alike. shmb_evaluate_as
 * reads the bytes as elements of dtype; a single element is a number (if int64 or float64 is
 * wanted, exactly 4 bytes are read as an int32 or float32). The functions below read one int, long,
 * float or double, depending on the reply's length. A host of shmbridge sends dtype and shape, so
 * these restrictions do not apply.
 */

/** Advice as one element of dtype, in shmb_dtype_size(dtype) bytes. Further errors: INVALID. */
shmb_status shmb_evaluate_number(shmb_runner *r, shmb_dtype dtype, void *advice);
/** Advice as one int64. */
static inline shmb_status shmb_evaluate_i64(shmb_runner *r, int64_t *advice) {
    return shmb_evaluate_number(r, SHMB_INT64, advice);
}

/** ---- Read ----------------------------------------------------------------------------------- */

/**
 * These read the last advice. Without one, as after a failed evaluate, they return INVALID. They
 * report a failure to find or read a field as evaluate does. The runner owns the memory behind
 * *out, which stays readable until the next evaluate or close. Exception: if a model in this
 * process returns a feature unchanged, the advice uses the feature's memory and is valid only until
 * that is filled again.
 */

/** How many tensors the advice has; 0 before the first evaluate and after a failed one. */
int64_t shmb_advice_count(const shmb_runner *r);
/** A tensor by its index. Errors: INVALID. */
shmb_status shmb_advice_at(shmb_runner *r, int64_t index, shmb_tensor *out);
/** A field by its name; NULL: the only one. Errors: MISMATCH (its message lists the names). */
shmb_status shmb_advice(shmb_runner *r, const char *name, shmb_tensor *out);
/** The same, which must be of that kind and dtype (SHMB_ANY: any). Errors: MISMATCH. */
shmb_status shmb_advice_as(shmb_runner *r, const char *name, shmb_kind kind, shmb_dtype dtype,
                           shmb_tensor *out);
/**
 * One element by its name (NULL: the only field), converted exactly, in shmb_dtype_size(dtype)
 * bytes. On error *advice is unchanged. Errors: MISMATCH (no such name, text, or not one element),
 * INEXACT, INVALID (no dtype).
 */
shmb_status shmb_advice_number(shmb_runner *r, const char *name, shmb_dtype dtype, void *advice);

/** ---- Ask several questions at once ---------------------------------------------------------- */

/**
 * Send the questions first and receive their answers later:
 *
 *     for (int i = 0; i < n; i++) {
 *         shmb_set_i64(r, "depth", loops[i].depth);
 *         tickets[i] = shmb_send(r, SHMB_INT64);
 *     }
 *     for (int i = 0; i < n; i++)
 *         if (shmb_receive_i64(r, tickets[i], &factor) == SHMB_OK) unroll(loops[i], factor);
 *
 * Over shm:// the model answers while you send and work; its host sees the questions as a batch. If
 * all slots are in use, send waits until one is free. Every other URL, a runner with retries, and
 * one with bound features answer each question while it is sent. So a program works the same with
 * every URL, and with any number of questions.
 */

/** Identifies a question that was sent; 0: none. */
typedef int64_t shmb_ticket;

/**
 * Sends the request without waiting for its advice, and returns a ticket for shmb_receive. want:
 * the dtype to which the host converts the advice, as in shmb_evaluate_as, or SHMB_ANY. The next
 * request starts empty. Failures, also of filling, are returned by shmb_receive. Each question has
 * its own deadline, which begins now. Receive every ticket, in any order: the runner keeps the
 * answers until then. If 32,767 are open, or memory runs out, nothing is sent, and 0 is returned.
 */
shmb_ticket shmb_send(shmb_runner *r, shmb_dtype want);
/**
 * Waits for the advice of a question that was sent, as shmb_evaluate does; the same functions read
 * it, until the next send, receive or evaluate. Features that you have filled since the last send
 * stay. Each ticket can be received once, whatever the result. Errors: as shmb_evaluate, and
 * INVALID (the ticket is not open).
 */
shmb_status shmb_receive(shmb_runner *r, shmb_ticket ticket);
/**
 * The same for a question that was sent with SHMB_INT64: the advice is exactly one. On error
 * *advice is unchanged. Errors: also shmb_advice_number's, with which you read other dtypes.
 */
static inline shmb_status shmb_receive_i64(shmb_runner *r, shmb_ticket ticket, int64_t *advice) {
    shmb_status status = shmb_receive(r, ticket);
    return status ? status : shmb_advice_number(r, NULL, SHMB_INT64, advice);
}

/** ---- Control -------------------------------------------------------------------------------- */

/**
 * Changes the deadline of later evaluates, in seconds. 0 means the default, infinity no limit. The
 * next evaluate asks again even after a TIMEOUT. A negative number or NaN changes nothing; the next
 * evaluate returns the error.
 */
void shmb_set_deadline(shmb_runner *r, double seconds);

/**
 * Makes a waiting evaluate, send or receive, or else the next one, return SHMB_INTERRUPTED within
 * 100 ms; the failure of a send is returned by its receive. This is the only function that a signal
 * handler or another thread may call, but not while the runner is being closed.
 */
void shmb_interrupt(shmb_runner *r);

/** ---- Count ---------------------------------------------------------------------------------- */

/** Counters of a runner since it was opened. */
typedef struct shmb_stats {
    /** sizeof(shmb_stats), set by the caller. */
    size_t size;
    /** The number of evaluates and sends. */
    int64_t questions;
    /**
     * Failed evaluates, receives and reads by shmb_status, including those that returned the
     * default advice.
     */
    int64_t failures[SHMB_STATUSES];
    /** Repeated questions and connection attempts. */
    int64_t retries;
    /** Evaluates that returned the default advice. shmb_error_message has the last one's reason. */
    int64_t defaulted;
    /**
     * Seconds of waiting for another process and of pauses before retries. Waits of a few
     * microseconds, which end before the runner first reads the clock, are not counted.
     */
    double waited;
} shmb_stats;

/** Fills *out; reads only its size. All counts of a NULL runner are 0. */
void shmb_runner_stats(const shmb_runner *r, shmb_stats *out);

/** ---- Errors --------------------------------------------------------------------------------- */

/**
 * The message of the last failed call on this runner: what it expected, what it found, and a
 * suggestion; "" if none failed. Longer texts are cut to 2047 bytes and end with "…". Valid until
 * the next call on the runner. For NULL, returns the text of SHMB_NO_MEMORY.
 */
const char *shmb_error_message(const shmb_runner *r);
/** A one-line description of a status; static. */
const char *shmb_strerror(shmb_status status);

#undef SHMB_POINTER
#ifdef __cplusplus
}
#endif

#endif
