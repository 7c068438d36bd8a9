/* A URL: scheme://where?option=value&… */
#ifndef SHMB_URL_H
#define SHMB_URL_H

#include <stdbool.h>

#include "base/error.h"

enum { URL_ROOM = 4096, URL_OPTIONS = 64 };

struct url {
    char text[URL_ROOM];
    const char *scheme, *where;
    struct url_option {
        const char *name, *value;
    } options[URL_OPTIONS]; /* those that not every kind has, until their kind takes them */
    int count;
};

/* Splits a URL; what every kind understands goes to *options. */
shmb_status shmb_url_split(const char *text, struct url *url, shmb_options *options,
                           struct error *e);
/* An option of the kind's own; NULL when the URL has none of that name. */
const char *shmb_url_option(const struct url *url, const char *name);
/* The same, and the kind takes it. */
const char *shmb_url_take(struct url *url, const char *name);
/* Reads an option's value as a whole number, 0 to most. */
bool shmb_url_number(const char *text, int32_t most, int32_t *out);
/* Fails when options are left that nobody took; known: those of the kind, for
 * example "serdes, ", or "". */
shmb_status shmb_url_done(const struct url *url, const char *known, struct error *e);
/* "where?option=value&…": with the options that nobody took. */
void shmb_url_where(const struct url *url, char *out, size_t room);

#endif
