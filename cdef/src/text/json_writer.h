/* JSON text written piece by piece into a sink's bytes, whatever the locale. When there is no
 * memory the sink's error says so, and the rest does nothing. */
#ifndef SHMB_JSON_WRITER_H
#define SHMB_JSON_WRITER_H

#include "message/sink.h"

void shmb_json_put(shmb_sink *to, const char *text); /* as it is */
void shmb_json_put_int(shmb_sink *to, int64_t value);
void shmb_json_put_uint(shmb_sink *to, uint64_t value);
/* The shortest decimal that is read back as the same double or float, always with a point or an
 * exponent; NaN, Infinity, -Infinity. */
void shmb_json_put_double(shmb_sink *to, double value);
void shmb_json_put_float(shmb_sink *to, float value);
/* A finite value as printf's %g with up to 17 digits, but with a point in every locale, and one in
 * every number without an exponent. Returns the text's size; no zero. */
enum { JSON_NUMBER_ROOM = 48 };
size_t shmb_json_print(char out[JSON_NUMBER_ROOM], int digits, double value);
/* In quotes and escaped; a byte that is no UTF-8 as Python's escape of it, \udc80 to \udcff. False
 * when there was one, or a zero. */
bool shmb_json_put_string(shmb_sink *to, const void *text, size_t size);
/* A name, and its colon. False after an error: it is empty or not UTF-8. */
bool shmb_json_put_name(shmb_sink *to, const char *name);

#endif
