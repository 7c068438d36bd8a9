#include <stdlib.h>
#include <string.h>

#include "runner.h"

/* Seconds: decimal digits with at most one point, then s (or nothing), ms or us. Own code since strtod asks the locale. */
static bool parse_seconds(const char *text, double *out) {
    double value = 0, scale = 1;
    int digits = 0;
    for (; *text >= '0' && *text <= '9'; text++, digits++) value = value * 10 + (*text - '0');
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) value += (*text - '0') * (scale /= 10);
    if (!digits) return false;
    if (strcmp(text, "ms") == 0) value /= 1e3;
    else if (strcmp(text, "us") == 0) value /= 1e6;
    else if (*text && strcmp(text, "s") != 0) return false;
    *out = value;
    return true;
}

static bool parse_wait(const char *text, shmb_wait *out) {
    static const char *const names[] = {"", "adaptive", "spin", "block"};
    for (int i = 1; i <= SHMB_WAIT_BLOCK; i++)
        if (strcmp(text, names[i]) == 0) return *out = (shmb_wait)i, true;
    return false;
}

static shmb_status parse_option(const char *name, const char *value, shmb_options *options, struct error *e) {
    double seconds;
    if (strcmp(name, "connect") == 0) {
        if (!parse_seconds(value, &seconds)) return fail(e, SHMB_INVALID, "connect=%.60s: expected seconds, e.g. 0.5, 2s or 500ms", value);
        options->connect_timeout = seconds > 0 ? seconds : -1;
    } else if (strcmp(name, "deadline") == 0) {
        if (!parse_seconds(value, &seconds)) return fail(e, SHMB_INVALID, "deadline=%.60s: expected seconds, e.g. 0.5, 2s or 500ms", value);
        options->deadline = seconds;
    } else if (strcmp(name, "wait") == 0) {
        if (!parse_wait(value, &options->wait)) return fail(e, SHMB_INVALID, "wait=%.60s: expected adaptive, spin or block", value);
    } else {
        return fail(e, SHMB_INVALID, "unknown option \"%.60s\" in the URL: expected connect, deadline or wait", name);
    }
    return SHMB_OK;
}

shmb_status url_split(const char *url, char *copy, size_t room, const char **scheme, const char **where,
                      shmb_options *options, struct error *e) {
    if (strlen(url) >= room) return fail(e, SHMB_INVALID, "the URL is longer than %zu bytes", room - 1);
    strcpy(copy, url);
    char *mark = strstr(copy, "://");
    *scheme = mark ? copy : "shm";
    *where = mark ? mark + 3 : copy;
    if (mark) *mark = 0;
    char *query = strchr(*where, '?');
    if (!query) return SHMB_OK;
    *query++ = 0;
    char *rest = NULL;
    for (char *option = strtok_r(query, "&", &rest); option; option = strtok_r(NULL, "&", &rest)) {
        char *value = strchr(option, '=');
        if (value) *value++ = 0;
        if (parse_option(option, value ? value : "", options, e)) return e->status;
    }
    return SHMB_OK;
}
