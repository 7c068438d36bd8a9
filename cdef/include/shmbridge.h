/* shmbridge: how a compiler asks a machine-learning model for advice.
 *
 * The C API reads from top to bottom as a tutorial: open, fill, ask, read, close; errors last.
 * What fewer programs need has headers of its own, which include this one:
 * shmbridge/model.h (models compiled ahead of time), shmbridge/environment.h (reinforcement
 * learning) and shmbridge/plugin.h (SerDes and runner kinds of your own).
 *
 *     shmb_runner *r;
 *     shmb_open("shm://inliner", NULL, &r);            // where this fails, evaluate says so
 *     float *x = shmb_feature_f32(r, "features", 300); // points into shared memory: write here
 *     ...
 *     int64_t advice;
 *     if (shmb_evaluate_i64(r, &advice) != SHMB_OK) advice = my_heuristic(...);
 *     shmb_close(r);
 *
 * Threads: a runner is for one thread at a time; several threads open a runner each. A call during
 * another thread's evaluate makes the runner SHMB_INVALID for good; that check is not exact.
 * Functions without a runner are thread-safe. Signal handlers: only shmb_interrupt.
 * After fork: the child may read what it kept and close the runner; every other call on an
 * inherited runner returns SHMB_FORKED, so the child opens its own.
 * Ownership: a runner owns all memory that it hands out; shmb_close frees it.
 * NULL where a result should go is SHMB_INVALID.
 * Strings are UTF-8 (other bytes reach Python as surrogate escapes, and come back as they were).
 * Numbers are in the machine's byte order. Times are in seconds.
 * Functions with a dtype in their names, as shmb_set_i64, are inline; the library exports what they
 * call.
 */
#ifndef SHMBRIDGE_H
#define SHMBRIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** This header's version; also _MINOR and _PATCH. shmb_version() returns the library's. */
#define SHMB_VERSION_MAJOR 0
#define SHMB_VERSION_MINOR 1
#define SHMB_VERSION_PATCH 0
/** A version as one number, for #if SHMB_VERSION >= SHMB_VERSION_OF(0, 2, 0). */
#define SHMB_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
/** This header's version as one number. */
#define SHMB_VERSION SHMB_VERSION_OF(SHMB_VERSION_MAJOR, SHMB_VERSION_MINOR, SHMB_VERSION_PATCH)

/** The library's version at run time, "MAJOR.MINOR.PATCH"; static. */
const char *shmb_version(void);

/** A connection to a model. shmb_open makes it, shmb_close frees it. */
typedef struct shmb_runner shmb_runner;

/* ---- Results --------------------------------------------------------------------------------- */

/**
 * What a call came to. HOST_GONE, CLOSED, CORRUPT and FORKED are for good: every later evaluate of
 * that runner returns the same at once. Close it and open another, which a runner with retries does
 * by itself. After any other status the runner goes on with the next request.
 */
typedef enum shmb_status {
    /** All went well. */
    SHMB_OK = 0,
    /** An argument, URL or option makes no sense. */
    SHMB_INVALID = 1,
    /** This library has no runner of that scheme, or the program is linked statically. */
    SHMB_UNSUPPORTED = 2,
    /** There was no live host of that name within the connect timeout. */
    SHMB_NO_HOST = 3,
    /** Every channel of the host was taken, for the connect timeout and a second at least. */
    SHMB_BUSY = 4,
    /** A live host has that name already. */
    SHMB_IN_USE = 5,
    /** The other side speaks another version of the protocol. */
    SHMB_INCOMPATIBLE = 6,
    /** The segment belongs to someone else, or is open to others. */
    SHMB_PERMISSION = 7,
    /** There were bytes that the protocol rules out. */
    SHMB_CORRUPT = 8,
    /** The host died. */
    SHMB_HOST_GONE = 9,
    /** The runner died or left before the reply. */
    SHMB_RUNNER_GONE = 10,
    /** The host closed the bridge, or this handle is closed. */
    SHMB_CLOSED = 11,
    /** The deadline passed, or an earlier answer is late; a late reply will be dropped. */
    SHMB_TIMEOUT = 12,
    /** shmb_interrupt ended the call, or a signal in Python. */
    SHMB_INTERRUPTED = 13,
    /** The message does not fit its slot. */
    SHMB_TOO_LARGE = 14,
    /** Names, dtypes or shapes are not the expected ones. */
    SHMB_MISMATCH = 15,
    /** A value has no exact counterpart in the wanted dtype. */
    SHMB_INEXACT = 16,
    /** The model failed; the message is its own. */
    SHMB_MODEL = 17,
    /** The host let the request go without a reply. */
    SHMB_DROPPED = 18,
    /** The handle was inherited through fork. */
    SHMB_FORKED = 19,
    /** The operating system refused; the message holds errno's text. */
    SHMB_SYSTEM = 20,
    /** Memory ran out. */
    SHMB_NO_MEMORY = 21
} shmb_status;

/* ---- Tensors --------------------------------------------------------------------------------- */

/** The type of a tensor's elements. */
typedef enum shmb_dtype {
    /** Only as the wanted dtype: whatever the model gives. */
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

/** What a field of a message is. */
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
    /** The greatest rank of a tensor. */
    SHMB_MAX_RANK = 8,
    /** Seconds that an evaluate takes at most, unless the caller or the host says otherwise. */
    SHMB_DEADLINE = 10,
    /** Room in shmb_stats for a count of each status, and of those to come. */
    SHMB_STATUSES = 32
};

/**
 * A named tensor as it lies in memory. A view: the function that fills it tells who owns what the
 * pointers point to, and how long it stays.
 */
typedef struct shmb_tensor {
    /** Its name in the message. */
    const char *name;
    /** The elements' type. */
    shmb_dtype dtype;
    /** What it is. */
    shmb_kind kind;
    /** The values' rank: dims[0..rank) of a tensor or string, dims[1..1+rank) of a list. */
    int32_t rank;
    /** The number of elements in data. */
    int64_t size;
    /** The dims, as kind says. */
    const int64_t *dims;
    /** A list's offsets; else NULL. */
    const int64_t *offsets;
    /**
     * The elements, 64-byte aligned; advice of at most 32 bytes is 8-byte aligned. Text ends
     * without a zero.
     */
    const void *data;
} shmb_tensor;

/** An input or output as a model declares it. */
typedef struct shmb_port {
    /** The feature's name, or the advice's. */
    const char *name;
    /** The elements' type. */
    shmb_dtype dtype;
    /** The number of dims. */
    int32_t rank;
    /** dims[rank]; -1: any size. */
    const int64_t *dims;
} shmb_port;

/** "float32", ...; "unknown" for what is no dtype; static. */
const char *shmb_dtype_name(shmb_dtype dtype);
/** The bytes of one element; 0 for what is no dtype. */
size_t shmb_dtype_size(shmb_dtype dtype);

/* ---- Open ------------------------------------------------------------------------------------ */

/** How a runner waits for the host. */
typedef enum shmb_wait {
    /** Adaptive. */
    SHMB_WAIT_DEFAULT = 0,
    /** Spin as long as it pays, then yield, then sleep. */
    SHMB_WAIT_ADAPTIVE = 1,
    /** Never sleep: lowest latency, one core each. */
    SHMB_WAIT_SPIN = 2,
    /** Sleep at once: no CPU while waiting. */
    SHMB_WAIT_BLOCK = 3
} shmb_wait;

/**
 * Options of a runner. Set size = sizeof(shmb_options) and zero the rest; a field that is zero
 * means its default. Times are 0 or more, and may be infinite; else INVALID.
 *
 * Recovery: connect_timeout is for shmb_open alone; a retry finds a host or not, though one that is
 * there has its second. The pauses add up to the time that a host has to come back: with retries=10
 * about 4 s. A pause that would outlast the deadline is not begun. When the retries are used up,
 * the evaluates that follow fail at once, or take the default, but for one attempt to connect in 16
 * times the backoff (and at most a sixteenth of the time); the first that succeeds makes all as
 * before. Features that are bound stay where they are. A runner with retries holds the request in
 * its own memory and copies it; it does not move to another host while its host lives. A question
 * is asked twice where its host died after computing and before replying: a host that counts, or
 * learns, sees both.
 *
 * A runner with retries or a default advice accepts its features where there is no host. The open
 * of one with a default advice is SHMB_OK for want of a host: NO_HOST, BUSY, HOST_GONE, CLOSED,
 * CORRUPT, TIMEOUT. Without retries it then takes the default for good.
 */
typedef struct shmb_options {
    /** sizeof(shmb_options). */
    size_t size;
    /**
     * Seconds to wait for a host that is not there. The default, 0, does not wait, so that a build
     * without a host does not feel it. Give some where host and compiler start together. A host
     * that is there has a second at least to accept, or to have a channel free: it may compute, or
     * be about to enter its loop. So have named pipes that stand, since they do not tell whether
     * their host lives.
     */
    double connect_timeout;
    /**
     * Seconds for one evaluate, with all its retries; infinity: no limit. Default: what the host
     * says, which is SHMB_DEADLINE unless its model is slow or it trains.
     *
     * After a late answer the runner stops asking: evaluate returns TIMEOUT at once. It asks again
     * when another process's late answer has come, or shmb_set_deadline is called; a model in this
     * process, or a plug-in, is asked again after 16 times the time that was lost.
     */
    double deadline;
    /** How to wait. Default: adaptive. */
    shmb_wait wait;
    /**
     * How many times one evaluate asks anew, each time over a new connection, when it ends in
     * NO_HOST, BUSY, HOST_GONE, CLOSED or CORRUPT. Default: 0.
     */
    int32_t retries;
    /**
     * Seconds before the first retry. Each further pause is twice as long, up to 16 times the
     * first, and a random part of up to half is taken off. Default: 0.05.
     */
    double backoff;
    /**
     * A finite number, as JSON writes it ("0", "-1.5", "1e3"): what evaluate gives, with SHMB_OK,
     * where nobody advises: after NO_HOST, BUSY, HOST_GONE, CLOSED, CORRUPT, TIMEOUT, DROPPED and
     * MODEL. It is one tensor "advice" of rank 0, of the wanted dtype (float32: the nearest; else
     * exactly, or SHMB_INEXACT), without a wish int64, uint64 or float64. The first time a line
     * says why, on stderr or to `log`; shmb_stats counts. Other failures stay: they are the
     * caller's own, or its machine's. Read during the call. Default: none.
     */
    const char *default_advice;
    /**
     * Gets what the library reports of this runner, a line without its end: the first evaluate that
     * fails (but for INTERRUPTED), and the first that takes the default advice. A caller that
     * reports failures itself gives a function that does nothing. Called during an evaluate, by its
     * thread; it may not call the runner. Default: the line goes to stderr.
     */
    void (*log)(void *context, const char *line);
    /** Given to log. */
    void *log_context;
    /**
     * What this runner is about, e.g. the source file that is compiled: the host sees it with each
     * request, and `shmbridge inspect` shows it. UTF-8; of more than 252 bytes the last. Only
     * shm:// carries it, elsewhere nobody hears it. Read during the call. Default: "".
     */
    const char *label;
} shmb_options;

/**
 * Opens a runner.
 *
 * url: where the model is. NULL reads the environment variable SHMBRIDGE_URL. A set-uid or set-gid
 *     program, or one with file capabilities, ignores that and every other variable of ours.
 *     shm://NAME, or NAME       another process, through shared memory
 *     pipe:///PATH?serdes=NAME  another process, through the named pipes PATH.in and PATH.out
 *     onnx:///MODEL.onnx        this process, by ONNX Runtime
 *     tflite:///MODEL.tflite    this process, by LiteRT
 *     aot:///MODEL.so           this process, compiled ahead of time (shmbridge/model.h)
 *     any other scheme          what was registered (shmbridge/plugin.h), else what the Python
 *                               package has (python://, grpc://, ...): see "shmbridge embed"
 * docs/deployment.md has each scheme's options. Every URL takes the names of shmb_options, as in
 * "shm://NAME?deadline=0.5&wait=spin".
 *
 * options: may be NULL; what the URL says wins over them.
 *
 * *out: the runner, which the caller owns. It is set on failure too: such a runner holds the
 * message, accepts every call, and evaluate returns and reports the same error, so a caller who has
 * a fallback for evaluate needs no check here. With retries it looks for a host again when it is
 * asked. On SHMB_NO_MEMORY it may be NULL, which every function accepts and answers in the same
 * way.
 *
 * Waits as connect_timeout says. Errors: INVALID, UNSUPPORTED, NO_HOST, BUSY, TIMEOUT (a live host
 * did not answer), INCOMPATIBLE, PERMISSION, CORRUPT, SYSTEM, NO_MEMORY.
 */
shmb_status shmb_open(const char *url, const shmb_options *options, shmb_runner **out);

/**
 * How many features the model behind a URL expects; -1 where the runner does not know, as over
 * shared memory. agent: which of the URL's agents is meant, which also expects its name as the
 * string "agent"; NULL: the only model.
 */
int64_t shmb_expected_count(const shmb_runner *r, const char *agent);
/** One of these features by its index; the runner owns what *out points to. Errors: INVALID. */
shmb_status shmb_expected_at(shmb_runner *r, const char *agent, int64_t index, shmb_port *out);

/** Closes and frees the runner, with all that it handed out. NULL is fine. A forked child may. */
void shmb_close(shmb_runner *r);

/* ---- Fill ------------------------------------------------------------------------------------ */

/* Each call adds one feature to the next request; order is kept. The runner owns the returned
 * memory, which is shared with the host where it can be, 64-byte aligned, uninitialised, and
 * writable until the next evaluate. Names are copied; a name that comes twice in one request is
 * SHMB_INVALID. An error sticks until evaluate returns it; until then the returned memory is
 * private, so that writing stays safe. NULL only when memory of that size cannot be had at all. */

/**
 * A tensor of any rank up to SHMB_MAX_RANK. dims[rank] may hold zeros, and make 1 TiB at most when
 * these count as ones; dims may be NULL for rank 0.
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
/** A vector of n float64. */
static inline double *shmb_feature_f64(shmb_runner *r, const char *name, int64_t n) {
    return SHMB_POINTER(double, shmb_feature(r, name, SHMB_FLOAT64, 1, &n));
}
/** A vector of n int32. */
static inline int32_t *shmb_feature_i32(shmb_runner *r, const char *name, int64_t n) {
    return SHMB_POINTER(int32_t, shmb_feature(r, name, SHMB_INT32, 1, &n));
}
/** A vector of n int64. */
static inline int64_t *shmb_feature_i64(shmb_runner *r, const char *name, int64_t n) {
    return SHMB_POINTER(int64_t, shmb_feature(r, name, SHMB_INT64, 1, &n));
}
/** A vector of n uint8. */
static inline uint8_t *shmb_feature_u8(shmb_runner *r, const char *name, int64_t n) {
    return SHMB_POINTER(uint8_t, shmb_feature(r, name, SHMB_UINT8, 1, &n));
}
/**
 * A list of `rows` rows: row i holds lengths[i] values, each a number (rank 1, dims NULL) or a
 * tensor of dims[rank - 1] (rank >= 2). Returns room for all values, rows one after another.
 */
void *shmb_feature_ragged(shmb_runner *r, const char *name, shmb_dtype dtype, int64_t rows,
                          const int64_t *lengths, int32_t rank, const int64_t *dims);

/* The same by copying: data, text and texts are read before the call returns, and may not be NULL
 * unless they are empty. */

/** Copies a tensor, as shmb_feature makes room for it. */
void shmb_set(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank, const int64_t *dims,
              const void *data);
/** A bool of rank 0: 0 is false, all else true. */
static inline void shmb_set_bool(shmb_runner *r, const char *name, int32_t value) {
    uint8_t *to = SHMB_POINTER(uint8_t, shmb_feature(r, name, SHMB_BOOL, 0, NULL));
    if (to) *to = value != 0;
}
/** An int32 of rank 0. */
static inline void shmb_set_i32(shmb_runner *r, const char *name, int32_t value) {
    int32_t *to = SHMB_POINTER(int32_t, shmb_feature(r, name, SHMB_INT32, 0, NULL));
    if (to) *to = value;
}
/** An int64 of rank 0. */
static inline void shmb_set_i64(shmb_runner *r, const char *name, int64_t value) {
    int64_t *to = SHMB_POINTER(int64_t, shmb_feature(r, name, SHMB_INT64, 0, NULL));
    if (to) *to = value;
}
/** A uint64 of rank 0. */
static inline void shmb_set_u64(shmb_runner *r, const char *name, uint64_t value) {
    uint64_t *to = SHMB_POINTER(uint64_t, shmb_feature(r, name, SHMB_UINT64, 0, NULL));
    if (to) *to = value;
}
/** A float32 of rank 0. */
static inline void shmb_set_f32(shmb_runner *r, const char *name, float value) {
    float *to = SHMB_POINTER(float, shmb_feature(r, name, SHMB_FLOAT32, 0, NULL));
    if (to) *to = value;
}
/** A float64 of rank 0. */
static inline void shmb_set_f64(shmb_runner *r, const char *name, double value) {
    double *to = SHMB_POINTER(double, shmb_feature(r, name, SHMB_FLOAT64, 0, NULL));
    if (to) *to = value;
}
/** A string of so many bytes; bytes < 0: up to the terminating zero. */
void shmb_set_string(shmb_runner *r, const char *name, const char *text, int64_t bytes);
/** A list of strings. bytes[count] may be NULL: each text up to its terminating zero. */
void shmb_set_strings(shmb_runner *r, const char *name, int64_t count, const char *const *texts,
                      const int64_t *bytes);
/** A list of rows as of shmb_feature_ragged; data: all values, rows one after another. */
void shmb_set_ragged(shmb_runner *r, const char *name, shmb_dtype dtype, int64_t rows,
                     const int64_t *lengths, int32_t rank, const int64_t *dims, const void *data);

/** Forgets what was filled since the last evaluate, and a stuck error of filling. */
void shmb_discard(shmb_runner *r);

/**
 * Binds a feature for the runner's life: the same address for every request, where a compiler that
 * keeps its tensors can let them live. Once one feature is bound all are: shmb_feature and shmb_set
 * are then SHMB_INVALID, and each evaluate sends the bound memory as it stands. The contents
 * survive an evaluate. The same name, dtype and dims again give the same address.
 *
 * Bind before the first evaluate, and before a feature is filled: a later bind is an error of that
 * call, and the runner goes on as it was. One that fails in time (its name, its dims, room) lasts:
 * every evaluate returns it, since its feature would be missing.
 */
void *shmb_bind(shmb_runner *r, const char *name, shmb_dtype dtype, int32_t rank,
                const int64_t *dims);

/* ---- Ask ------------------------------------------------------------------------------------- */

/**
 * Sends the request and waits for the advice, at most until the deadline; the host's death ends it
 * within 250 ms. A model in this process ends between two of its operators, if its kind can be
 * stopped at all: TIMEOUT and INTERRUPTED come then. Whatever it returns, the next request starts
 * empty (bound features stay). The runner's first failure is also one line on stderr, or to
 * shmb_options.log. Errors: what stuck while filling, and HOST_GONE, CLOSED, TIMEOUT, INTERRUPTED,
 * TOO_LARGE, MISMATCH, MODEL, DROPPED, CORRUPT, FORKED.
 */
shmb_status shmb_evaluate(shmb_runner *r);
/**
 * The same, asking the host to give its advice as dtype: converted where every value is exactly
 * representable, else SHMB_INEXACT on both sides. The advice must then be one tensor, string or
 * list. Errors: also INVALID (no such dtype).
 */
shmb_status shmb_evaluate_as(shmb_runner *r, shmb_dtype dtype);

/* The same for advice of exactly one element, of any rank; *advice is untouched on error. Errors:
 * also MISMATCH.
 *
 * With serdes=bitstream a host of ML-Compiler-Bridge's replies in bytes alone. Then shmb_evaluate
 * is MISMATCH, since an int and a float look alike; shmb_evaluate_as takes them for elements of
 * that dtype (4 bytes alone, wanted as int64 or float64, for an int32 or a float32), one element
 * for a number; and these take one int, long, float or double, by the reply's length. A host of
 * shmbridge tells dtype and shape, so all is as over shared memory. */

/** Advice as one element of dtype, into shmb_dtype_size(dtype) bytes. Errors: also INVALID. */
shmb_status shmb_evaluate_number(shmb_runner *r, shmb_dtype dtype, void *advice);
/** Advice as one int64. */
static inline shmb_status shmb_evaluate_i64(shmb_runner *r, int64_t *advice) {
    return shmb_evaluate_number(r, SHMB_INT64, advice);
}
/** Advice as one int32. */
static inline shmb_status shmb_evaluate_i32(shmb_runner *r, int32_t *advice) {
    return shmb_evaluate_number(r, SHMB_INT32, advice);
}
/** Advice as one float32. */
static inline shmb_status shmb_evaluate_f32(shmb_runner *r, float *advice) {
    return shmb_evaluate_number(r, SHMB_FLOAT32, advice);
}
/** Advice as one float64. */
static inline shmb_status shmb_evaluate_f64(shmb_runner *r, double *advice) {
    return shmb_evaluate_number(r, SHMB_FLOAT64, advice);
}

/**
 * Changes the deadline of later evaluates, in seconds, as shmb_options has it: 0 means the default,
 * infinity no limit. The next evaluate asks, also after a late answer. A negative one or a NaN
 * changes nothing, and is an error that sticks as those of filling do.
 */
void shmb_set_deadline(shmb_runner *r, double seconds);

/**
 * Makes a waiting (or else the next) evaluate return SHMB_INTERRUPTED, within 100 ms. The only
 * function that may be called from a signal handler or from another thread; not while the runner is
 * closed.
 */
void shmb_interrupt(shmb_runner *r);

/* ---- Read ------------------------------------------------------------------------------------ */

/* Of the last advice; without one, as after a failed evaluate, INVALID. The runner owns what *out
 * points to, which stays readable until the next evaluate or close; but where a model in this
 * process gives a feature back as it came, the advice lies in the feature's memory, until that is
 * filled again. */

/** How many tensors the advice has; 0 before the first and after a failed evaluate. */
int64_t shmb_advice_count(const shmb_runner *r);
/** A tensor by its index. Errors: INVALID. */
shmb_status shmb_advice_at(shmb_runner *r, int64_t index, shmb_tensor *out);
/** A tensor by its name; NULL: the only one. Errors: MISMATCH, which lists the names there are. */
shmb_status shmb_advice(shmb_runner *r, const char *name, shmb_tensor *out);

/* One element by its name (NULL: the only field), converted as evaluate does: exactly, or
 * SHMB_INEXACT. *advice is untouched on error. Errors: also MISMATCH (no such name, text, or not
 * one element). */

/** One element as any dtype, into shmb_dtype_size(dtype) bytes. Errors: also INVALID (no dtype). */
shmb_status shmb_advice_number(shmb_runner *r, const char *name, shmb_dtype dtype, void *advice);
/** One element as an int64. */
static inline shmb_status shmb_advice_i64(shmb_runner *r, const char *name, int64_t *advice) {
    return shmb_advice_number(r, name, SHMB_INT64, advice);
}
/** One element as an int32. */
static inline shmb_status shmb_advice_i32(shmb_runner *r, const char *name, int32_t *advice) {
    return shmb_advice_number(r, name, SHMB_INT32, advice);
}
/** One element as a float32. */
static inline shmb_status shmb_advice_f32(shmb_runner *r, const char *name, float *advice) {
    return shmb_advice_number(r, name, SHMB_FLOAT32, advice);
}
/** One element as a float64. */
static inline shmb_status shmb_advice_f64(shmb_runner *r, const char *name, double *advice) {
    return shmb_advice_number(r, name, SHMB_FLOAT64, advice);
}
/** A string: *text[*bytes], without a zero at its end. It stays as long as *out of shmb_advice. */
shmb_status shmb_advice_string(shmb_runner *r, const char *name, const char **text, int64_t *bytes);

/* ---- Count ----------------------------------------------------------------------------------- */

/** What a runner counts from its opening on. */
typedef struct shmb_stats {
    /** sizeof(shmb_stats), set by the caller. */
    size_t size;
    /** Evaluates. */
    int64_t questions;
    /** By shmb_status: evaluates that ended so, also those that then took the default advice. */
    int64_t failures[SHMB_STATUSES];
    /** Questions that were asked anew, or connections that were tried anew. */
    int64_t retries;
    /** Evaluates that took the default advice. The last one's reason is shmb_error_message. */
    int64_t defaulted;
    /**
     * Seconds in waits for another process, and in pauses before retries. A wait whose end comes
     * while it still spins without a clock, within a few microseconds, costs none and counts none.
     */
    double waited;
} shmb_stats;

/** Fills *out, of which only size is read. NULL has counted nothing. */
void shmb_runner_stats(const shmb_runner *r, shmb_stats *out);

/* ---- Errors ---------------------------------------------------------------------------------- */

/**
 * What the last failed call on this runner expected, found, and suggests; "" when none failed. A
 * text of more than 2047 bytes is cut, and ends with "…".
 * Valid until the next call on the runner. NULL is answered with SHMB_NO_MEMORY's text.
 */
const char *shmb_error_message(const shmb_runner *r);
/** One line for a status; static. */
const char *shmb_strerror(shmb_status status);

#undef SHMB_POINTER
#ifdef __cplusplus
}
#endif

#endif
