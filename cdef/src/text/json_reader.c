#include "text/json_reader.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "message/message.h"

/* ---- Places ---- */

void shmb_json_start(struct json *j, const void *text, size_t size) {
    *j = (struct json){.start = text, .at = text, .end = (const uint8_t *)text + size};
}

bool shmb_json_wrong(struct json *j, const char *expected) {
    if (!j->expected) j->expected = expected;
    return false;
}

shmb_status shmb_json_fail(const struct json *j, struct error *e, const char *what) {
    char found[24] = "its end";
    if (j->at < j->end)
        snprintf(found, sizeof found, *j->at > ' ' && *j->at < 0x7f ? "'%c'" : "byte 0x%02x",
                 *j->at);
    return shmb_fail(e, SHMB_CORRUPT, "%s: expected %s, found %s at byte %zu of %zu", what,
                     j->expected, found, (size_t)(j->at - j->start), (size_t)(j->end - j->start));
}

/* The next byte that is no white space; 0 at the end. */
static uint8_t ahead(struct json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
    return j->at < j->end ? *j->at : 0;
}

static bool take(struct json *j, char c, const char *expected) {
    if (j->expected || ahead(j) != (uint8_t)c) return shmb_json_wrong(j, expected);
    j->at++;
    return true;
}

static bool take_word(struct json *j, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(j->end - j->at) < size || memcmp(j->at, word, size) != 0) return false;
    j->at += size;
    return true;
}

enum json_type shmb_json_peek(struct json *j) {
    if (j->expected) return JSON_WRONG;
    switch (ahead(j)) {
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case '"': return JSON_STRING;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    case '-':
    case 'N':
    case 'I': return JSON_NUMBER;
    default: return ahead(j) >= '0' && ahead(j) <= '9' ? JSON_NUMBER : JSON_WRONG;
    }
}

/* ---- Objects and arrays ---- */

static bool reader_enter(struct json *j, char bracket, const char *expected) {
    if (!j->expected && j->depth == JSON_MAX_DEPTH && ahead(j) == (uint8_t)bracket)
        return shmb_json_wrong(j, "at most 64 nested brackets");
    if (!take(j, bracket, expected)) return false;
    j->begun <<= 1;
    j->depth++;
    return true;
}

bool shmb_json_object(struct json *j) { return reader_enter(j, '{', "an object"); }
bool shmb_json_array(struct json *j) { return reader_enter(j, '[', "an array"); }

/* Is there another element? Else leaves. */
static bool another(struct json *j, char bracket, const char *expected) {
    if (j->expected) return false;
    if (ahead(j) == (uint8_t)bracket) {
        j->at++;
        j->begun >>= 1;
        j->depth--;
        return false;
    }
    if (j->begun & 1 && !take(j, ',', expected)) return false;
    j->begun |= 1;
    return true;
}

bool shmb_json_key(struct json *j, struct json_text *key) {
    return another(j, '}', "',' or '}'") && shmb_json_string(j, key) && take(j, ':', "':'");
}

bool shmb_json_element(struct json *j) { return another(j, ']', "',' or ']'"); }

/* ---- Strings ---- */

/* The four hexadecimal digits at `at`; -1 when they are none. */
static int32_t hexadecimal(const uint8_t *at, const uint8_t *end) {
    int32_t value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        if (!isxdigit(c)) return -1;
        value = value << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

static size_t put_utf8(uint32_t c, uint8_t *out) {
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t bytes = 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = bytes; --i > 0; c >>= 6) out[i] = (uint8_t)(0x80 | (c & 63));
    out[0] = (uint8_t)(first[bytes] | c);
    return bytes;
}

/* The escape at the backslash `at`: its bytes into out[4], *used of the text; returns how many, 0
 * when it is none. */
static size_t unescape(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *used) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *simple = end - at >= 2 && at[1] ? strchr(letters, at[1]) : NULL;
    *used = 2;
    if (simple) {
        *out = (uint8_t)meant[simple - letters];
        return 1;
    }
    if (end - at < 2 || at[1] != 'u') return 0;
    int32_t c = hexadecimal(at + 2, end);
    *used = 6;
    if (c < 0) return 0;
    if (c < 0xd800 || c > 0xdfff) return put_utf8((uint32_t)c, out);
    if (c >= 0xdc80 && c <= 0xdcff) {
        *out = (uint8_t)c;
        return 1;
    }
    int32_t low = c < 0xdc00 && end - at >= 12 && at[6] == '\\' && at[7] == 'u'
                      ? hexadecimal(at + 8, end)
                      : -1;
    *used = 12;
    if (low < 0xdc00 || low > 0xdfff) return 0;
    return put_utf8(0x10000 + ((uint32_t)(c - 0xd800) << 10) + (uint32_t)(low - 0xdc00), out);
}

bool shmb_json_string(struct json *j, struct json_text *out) {
    *out = (struct json_text){0};
    if (!take(j, '"', "a string")) return false;
    const uint8_t *raw = j->at;
    while (j->at < j->end && *j->at != '"') {
        uint8_t bytes[4];
        size_t used = 1, size = 1;
        if (*j->at < ' ') return shmb_json_wrong(j, "no control character in a string");
        if (*j->at == '\\') {
            out->escaped = true;
            if (!(size = unescape(j->at, j->end, bytes, &used)))
                return shmb_json_wrong(j, "an escape such as \\n or \\u00e9, surrogates in pairs");
        }
        j->at += used;
        out->size += size;
    }
    out->raw = raw;
    out->raw_size = (size_t)(j->at - raw);
    return take(j, '"', "'\"' at the string's end");
}

void shmb_json_copy(const struct json_text *text, char *out) {
    const uint8_t *at = text->raw, *end = at + text->raw_size;
    if (!text->escaped) {
        if (text->size) memcpy(out, at, text->size);
        return;
    }
    while (at < end) {
        uint8_t bytes[4];
        size_t used = 1, size = 1;
        if (*at == '\\') size = unescape(at, end, bytes, &used);
        else bytes[0] = *at;
        memcpy(out, bytes, size);
        out += size;
        at += used;
    }
}

bool shmb_json_is(const struct json_text *text, const char *literal) {
    size_t size = strlen(literal);
    char copy[64];
    if (text->size != size || size > sizeof copy) return false;
    shmb_json_copy(text, copy);
    return memcmp(copy, literal, size) == 0;
}

bool shmb_json_name(const struct json_text *text, char *out) {
    shmb_json_copy(text, out);
    out[text->size] = 0;
    return shmb_utf8_name_valid(out, text->size);
}

/* ---- Numbers ---- */

static bool digits(struct json *j) {
    const uint8_t *from = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
    return j->at > from || shmb_json_wrong(j, "a digit");
}

static bool at_either(const struct json *j, char a, char b) {
    return j->at < j->end && (*j->at == a || *j->at == b);
}

/* Passes a number; *whole: it has neither point nor exponent. */
static bool pass_number(struct json *j, bool *whole) {
    *whole = false;
    if (shmb_json_peek(j) != JSON_NUMBER) return shmb_json_wrong(j, "a number");
    if (take_word(j, "NaN") || take_word(j, "Infinity") || take_word(j, "-Infinity")) return true;
    if (*j->at == '-') j->at++;
    if (at_either(j, '0', '0')) j->at++;
    else if (!digits(j)) return false;
    *whole = true;
    if (at_either(j, '.', '.')) {
        *whole = false;
        j->at++;
        if (!digits(j)) return false;
    }
    if (!at_either(j, 'e', 'E')) return true;
    *whole = false;
    j->at++;
    if (at_either(j, '+', '-')) j->at++;
    return digits(j);
}

static void read_integer(struct shmb_json_number *n) {
    bool negative = *n->raw == '-', huge = false;
    uint64_t u = 0;
    for (size_t i = negative; i < n->raw_size; i++)
        huge |= __builtin_mul_overflow(u, (uint64_t)10, &u) ||
                __builtin_add_overflow(u, (uint64_t)(n->raw[i] - '0'), &u);
    uint64_t most = (uint64_t)INT64_MAX + negative;
    n->kind = u > most ? JSON_UINT : JSON_INT;
    if (huge || (negative && u > most)) n->kind = JSON_HUGE;
    if (n->kind == JSON_HUGE) n->value = shmb_json_double(n->raw, n->raw_size);
    else n->value = negative ? -(double)u : (double)u;
    if (n->kind == JSON_UINT) n->u = u;
    if (n->kind == JSON_INT) n->i = (int64_t)(negative ? 0 - u : u);
}

bool shmb_json_number(struct json *j, struct shmb_json_number *out) {
    *out = (struct shmb_json_number){.kind = JSON_FLOAT};
    shmb_json_peek(j);
    const uint8_t *raw = j->at;
    bool whole;
    if (!pass_number(j, &whole)) return false;
    out->raw = raw;
    out->raw_size = (size_t)(j->at - raw);
    if (whole) read_integer(out);
    else if (*raw == 'N') out->value = (double)NAN;
    else if (j->at[-1] > '9') out->value = *raw == '-' ? -(double)INFINITY : (double)INFINITY;
    else {
        out->value = shmb_json_double(raw, out->raw_size);
        if (isinf(out->value)) {
            j->at = raw;
            return shmb_json_wrong(j, "a number within float64's range");
        }
    }
    return true;
}

bool shmb_json_int(struct json *j, int64_t *out) {
    struct shmb_json_number n;
    shmb_json_peek(j);
    const uint8_t *raw = j->at;
    bool read = shmb_json_number(j, &n);
    *out = n.i;
    if (!read || n.kind == JSON_INT) return read;
    j->at = raw;
    return shmb_json_wrong(j, "an integer of 64 bits");
}

/* ---- The rest ---- */

bool shmb_json_bool(struct json *j, bool *out) {
    *out = shmb_json_peek(j) == JSON_TRUE;
    return !j->expected &&
           (take_word(j, "true") || take_word(j, "false") || shmb_json_wrong(j, "true or false"));
}

bool shmb_json_skip(struct json *j) {
    struct json_text text;
    bool b;
    switch (shmb_json_peek(j)) {
    case JSON_OBJECT:
        for (shmb_json_object(j); shmb_json_key(j, &text);) shmb_json_skip(j);
        return !j->expected;
    case JSON_ARRAY:
        for (shmb_json_array(j); shmb_json_element(j);) shmb_json_skip(j);
        return !j->expected;
    case JSON_STRING: return shmb_json_string(j, &text);
    case JSON_NUMBER: return pass_number(j, &b);
    case JSON_TRUE:
    case JSON_FALSE: return shmb_json_bool(j, &b);
    case JSON_NULL: return take_word(j, "null") || shmb_json_wrong(j, "null");
    default: return shmb_json_wrong(j, "a value");
    }
}

bool shmb_json_end(struct json *j) {
    if (j->expected) return false;
    ahead(j);
    return (j->depth == 0 && j->at == j->end) ||
           shmb_json_wrong(j, j->depth ? "a closing bracket" : "nothing more");
}
