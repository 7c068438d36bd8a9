#include "runner/url.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json_reader.h"

/* Seconds: decimal digits with at most one point, then s (or nothing), ms or us; or "inf". */
static bool parse_seconds(const char *text, double *out) {
    static const char digits[] = "0123456789";
    size_t whole = strspn(text, digits), size = whole;
    if (text[whole] == '.') size += 1 + strspn(text + whole + 1, digits);
    const char *unit = text + size;
    if (strcmp(text, "inf") == 0) {
        *out = HUGE_VAL;
        return true;
    }
    if (size == (*text == '.')) return false;
    *out = shmb_json_double((const uint8_t *)text, size);
    if (strcmp(unit, "ms") == 0) *out /= 1e3;
    else if (strcmp(unit, "us") == 0) *out /= 1e6;
    else return !*unit || strcmp(unit, "s") == 0;
    return true;
}

bool shmb_url_number(const char *text, int32_t most, int32_t *out) {
    int64_t value = *text ? 0 : -1;
    for (; *text >= '0' && *text <= '9' && value <= most; text++)
        value = value * 10 + (*text - '0');
    *out = (int32_t)value;
    return !*text && value >= 0 && value <= most;
}

static bool parse_wait(const char *text, shmb_wait *out) {
    static const char *const names[] = {"", "adaptive", "spin", "block"};
    for (int i = 1; i <= SHMB_WAIT_BLOCK; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (shmb_wait)i;
            return true;
        }
    return false;
}

/* An option that every kind has; *known is false when it is none. */
static shmb_status parse_option(const char *name, const char *value, shmb_options *options,
                                bool *known, struct error *e) {
    double seconds = 0, *times = NULL;
    *known = true;
    if (strcmp(name, "connect_timeout") == 0) times = &options->connect_timeout;
    else if (strcmp(name, "deadline") == 0) times = &options->deadline;
    else if (strcmp(name, "backoff") == 0) times = &options->backoff;
    if (times && !parse_seconds(value, &seconds))
        return shmb_fail(e, SHMB_INVALID, "%s=%.60s: expected seconds, e.g. 0.5, 2s, 500ms or inf",
                         name, value);
    if (times) *times = seconds;
    else if (strcmp(name, "wait") == 0) {
        if (!parse_wait(value, &options->wait))
            return shmb_fail(e, SHMB_INVALID, "wait=%.60s: expected adaptive, spin or block",
                             value);
    } else if (strcmp(name, "retries") == 0) {
        if (!shmb_url_number(value, INT32_MAX, &options->retries))
            return shmb_fail(e, SHMB_INVALID, "retries=%.60s: expected a whole number, 0 or more",
                             value);
    } else if (strcmp(name, "default_advice") == 0) {
        options->default_advice = value;
    } else if (strcmp(name, "label") == 0) {
        options->label = value;
    } else {
        *known = false;
    }
    return SHMB_OK;
}

shmb_status shmb_url_split(const char *text, struct url *url, shmb_options *options,
                           struct error *e) {
    if (strlen(text) >= sizeof url->text)
        return shmb_fail(e, SHMB_INVALID, "the URL is longer than %zu bytes", sizeof url->text - 1);
    strcpy(url->text, text);
    char *mark = strstr(url->text, "://"), *where = mark ? mark + 3 : url->text;
    url->scheme = mark ? url->text : "shm";
    url->where = where;
    url->count = 0;
    if (mark) *mark = 0;
    char *query = strchr(where, '?');
    if (!query) return SHMB_OK;
    *query++ = 0;
    char *rest = NULL;
    for (char *option = strtok_r(query, "&", &rest); option; option = strtok_r(NULL, "&", &rest)) {
        bool known;
        char *value = strchr(option, '=');
        if (value) *value++ = 0;
        if (parse_option(option, value ? value : "", options, &known, e)) return e->status;
        if (known) continue;
        if (url->count == URL_OPTIONS)
            return shmb_fail(e, SHMB_INVALID, "the URL has more than %d options", URL_OPTIONS);
        url->options[url->count++] = (struct url_option){option, value ? value : ""};
    }
    return SHMB_OK;
}

static int find_option(const struct url *url, const char *name) {
    for (int i = 0; i < url->count; i++)
        if (strcmp(url->options[i].name, name) == 0) return i;
    return -1;
}

const char *shmb_url_option(const struct url *url, const char *name) {
    int i = find_option(url, name);
    return i < 0 ? NULL : url->options[i].value;
}

const char *shmb_url_take(struct url *url, const char *name) {
    const char *value = shmb_url_option(url, name);
    if (value) url->options[find_option(url, name)] = url->options[url->count - 1], url->count--;
    return value;
}

shmb_status shmb_url_done(const struct url *url, const char *known, struct error *e) {
    if (!url->count) return SHMB_OK;
    return shmb_fail(e, SHMB_INVALID,
                     "unknown option \"%.60s\" in the URL: expected %sconnect_timeout, deadline, "
                     "wait, retries, backoff, default_advice or label",
                     url->options[0].name, known);
}

void shmb_url_where(const struct url *url, char *out, size_t room) {
    size_t used = (size_t)snprintf(out, room, "%s", url->where);
    for (int i = 0; i < url->count && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%c%s=%s", i ? '&' : '?',
                                 url->options[i].name, url->options[i].value);
}
