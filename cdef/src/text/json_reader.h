/* JSON text (RFC 8259, and Python's NaN, Infinity, -Infinity) read value by value: strict, without
 * allocation, whatever the locale. The text is bytes[size] without a terminating zero, may hold
 * anything, and must stay as long as what was read of it. Whoever reads an object reads or skips
 * exactly one value after each key. The first error sticks, and ends every loop. */
#ifndef SHMB_JSON_READER_H
#define SHMB_JSON_READER_H

#include <stdbool.h>

#include "base/error.h"

enum { JSON_MAX_DEPTH = 64 };

struct json {
    const uint8_t *start, *at, *end;
    const char *expected; /* static: what should have stood at `at`; NULL while all is well */
    uint64_t begun;       /* per open bracket, the innermost lowest: has it had an element? */
    int depth;
};

enum json_type {
    JSON_WRONG,
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
};

/* A string as it stands in the text. A surrogate pair is its character; \udc80 to \udcff, Python's
 * escapes of bytes that are no UTF-8, are the bytes 80 to ff; bytes above 7f stand for themselves,
 * UTF-8 or not. */
struct json_text {
    const uint8_t *raw; /* between the quotes */
    size_t raw_size;
    /* bytes that shmb_json_copy writes; the same as raw_size when nothing is escaped */
    size_t size;
    bool escaped;
};

enum json_number_kind {
    JSON_INT,  /* in i */
    JSON_UINT, /* above INT64_MAX: in u */
    JSON_HUGE, /* an integer beyond both; value: the double nearest to it, perhaps infinite */
    JSON_FLOAT /* has a point or an exponent, or is NaN or infinite; in value, correctly rounded */
};
struct shmb_json_number {
    enum json_number_kind kind;
    int64_t i;
    uint64_t u;
    double value; /* of any kind, rounded */
    const uint8_t *raw;
    size_t raw_size;
};

void shmb_json_start(struct json *j, const void *text, size_t size);

/* The type of the value that comes next; JSON_WRONG where none does, which alone is no error. */
enum json_type shmb_json_peek(struct json *j);

/* Enter an object or array. Each false (and an error) when another value comes next. Opening the
 * 65th is an error. */
bool shmb_json_object(struct json *j);
bool shmb_json_array(struct json *j);
/* The next key of the object; true in front of the array's next element. False at the end, which is
 * left, and after an error. */
bool shmb_json_key(struct json *j, struct json_text *key);
bool shmb_json_element(struct json *j);

bool shmb_json_string(struct json *j, struct json_text *out);
/* A decimal beyond the doubles, such as 1e999, is an error. */
bool shmb_json_number(struct json *j, struct shmb_json_number *out);
/* Any number but an integer within int64 is an error. */
bool shmb_json_int(struct json *j, int64_t *out);
bool shmb_json_bool(struct json *j, bool *out);
bool shmb_json_skip(struct json *j);
/* Only white space is left, and no error was met. */
bool shmb_json_end(struct json *j);

/* Says that what was read last is not the `expected` (static text) thing; false. */
bool shmb_json_wrong(struct json *j, const char *expected);
/* "WHAT: expected …, found … at byte N" of the first error, as SHMB_CORRUPT. */
shmb_status shmb_json_fail(const struct json *j, struct error *e, const char *what);

bool shmb_json_is(const struct json_text *text, const char *literal);
void shmb_json_copy(const struct json_text *text, char *out); /* size bytes, no zero */
/* The same with a terminating zero, for names: false when empty, holding a zero byte, or not UTF-8.
 * out[size + 1] */
bool shmb_json_name(const struct json_text *text, char *out);

/* The decimal number raw[raw_size] (JSON's grammar), rounded once to the nearest double or
 * float. */
double shmb_json_double(const uint8_t *raw, size_t raw_size);
float shmb_json_float(const uint8_t *raw, size_t raw_size);

#endif
